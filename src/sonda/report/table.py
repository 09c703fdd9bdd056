"""A table as plain data: what the terminal, the page and the notebook have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from sonda.analysis.bounds import part_of_step
from sonda.analysis.summary import Value
from sonda.report import quantities

LAST = 9
"""`keep` of a column that is never left out."""


@dataclass(frozen=True)
class Cell:
    """One field: what is written, what it sorts by, what a tooltip adds."""

    text: str
    order: float | str | None = None
    hint: str = ""
    missing: str = ""
    """Why there is no number, where there is none."""
    tone: str = ""
    """good, bad, strong, quiet, name, or one of `BOUNDS`; '' is none of them."""
    unit: str = ""
    """Unit of `order`, `low` and `high`, for who copies them; '' where only the text tells what the number is."""
    low: float | None = None
    high: float | None = None
    estimated: bool = False
    """Whether its number is a guess with bounds, which a page hatches."""


@dataclass(frozen=True)
class Column:
    name: str
    right: bool = True
    keep: int = LAST
    """Which columns stay in a terminal too narrow for all: those with the lowest number go first, of equal ones the
    leftmost, and are named below the table. One of `LAST` always stays. Pages and notebooks show all."""
    hint: str = ""
    path: bool = False
    """Holds module paths, which are shortened in front."""
    wrap: bool = False
    """Holds sentences, which go on below; only the last column may."""


@dataclass(frozen=True)
class Table:
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    name: str = ""
    attributes: tuple[dict[str, str], ...] = field(default=())
    """For the page: data attributes of each row, such as its place in the tree."""

    def reasons(self) -> dict[str, list[str]]:
        """Why numbers are missing: for every reason, the names of the columns that lack one."""
        names_by_reason: dict[str, list[str]] = {}
        for row in self.rows:
            for column, cell in zip(self.columns, row, strict=True):
                names = names_by_reason.setdefault(cell.missing, [])
                if column.name not in names:
                    names.append(column.name)
        names_by_reason.pop("", None)
        return names_by_reason

    def drop_columns(self, dropped: set[str]) -> Table:
        """The same table with fewer columns."""
        chosen = [index for index, column in enumerate(self.columns) if column.name not in dropped]
        return replace(
            self,
            columns=tuple(self.columns[index] for index in chosen),
            rows=tuple(tuple(row[index] for index in chosen) for row in self.rows),
        )


BOUNDS = ("compute", "memory", "overhead", "input", "transfer", "host")


def tone_of(bound: str) -> str:
    """How a bound or the kind of a verdict is coloured: each has its own tone."""
    return bound if bound in BOUNDS else ""


def words(texts: Sequence[str], tone: Callable[[str], str] | None = None) -> list[Cell]:
    """Cells of plain words; an empty word is `–`."""
    return [Cell(text or quantities.MISSING, text or None, tone=tone(text) if tone and text else "") for text in texts]


def numbers(values: Sequence[Value], suffix: bool = False) -> tuple[str, list[Cell]]:
    """The unit that a whole column shares, and its cells; with `suffix` every cell carries the unit itself."""
    scale, texts = quantities.column(values)
    cells = []
    for value, text in zip(values, texts, strict=True):
        shown = f"{text} {scale.unit}".rstrip() if suffix and quantities.known(value) else text
        cells.append(quantity(value, shown))
    return scale.unit, cells


def percents(values: Sequence[Value], sign: bool = True, decimals: int = 0) -> list[Cell]:
    """Cells of shares (1 is 100 %)."""
    mark = " %" if sign else ""
    hundreds = [
        replace(value, value=_times(value.value), unit="%", low=_times(value.low), high=_times(value.high))
        for value in values
    ]
    texts = [f"{quantities.percent(value.value, decimals)}{mark}" for value in values]
    return [quantity(many, text) for many, text in zip(hundreds, texts, strict=True)]


def shares(values: Sequence[float], of: str) -> list[Cell]:
    """Cells of shares (1 is 100 %) with one decimal, without interval and sign. NaN and shares above 1 are missing."""
    parts = [part_of_step(value) for value in values]
    return [
        Cell(quantities.MISSING, missing=part.reason, tone="quiet")
        if part.value is None
        else Cell(
            quantities.percent(part.value, 1), 100 * part.value,
            f"{quantities.percent(part.value, 1)} % of {of}, derived", unit="%",
        )
        for part in parts
    ]  # fmt: skip


def build(columns: Sequence[tuple[Column, Sequence[Cell]]], name: str = "") -> Table:
    """A table from columns of equal length."""
    cells = [content for _, content in columns]
    return Table(tuple(column for column, _ in columns), tuple(zip(*cells, strict=True)), name)


def quantity(value: Value, text: str, tone: str = "") -> Cell:
    """A number as `text`, with its unit, source and interval; `–` with its reason where there is none."""
    if quantities.known(value):
        hint, guess = quantities.provenance(value), quantities.is_guess(value)
        return Cell(text, value.value, hint, "", tone, value.unit, value.low, value.high, guess)
    return Cell(quantities.MISSING, None, quantities.provenance(value), value.reason, "quiet")


def _times(share: float | None) -> float | None:
    return None if share is None else 100 * share
