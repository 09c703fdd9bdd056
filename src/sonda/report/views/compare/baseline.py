"""Several runs against the first of them: a column each, and what is not significant is greyed and says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from sonda.analysis.comparison.summary import ComparedRow, Comparison
from sonda.report import quantities
from sonda.report.table import Cell, Column, Table, build, numbers, quantity
from sonda.report.views.steps.layer_tree import LIMIT

FIRST = "the others are held against this one"


@dataclass(frozen=True)
class BaselineComparison:
    """A run, or runs of one name, against the first."""

    name: str
    comparison: Comparison | None
    reason: str = ""
    """Why it cannot be compared, where it cannot."""
    columns: tuple[int, ...] = ()
    """Its places among all runs: one, or those of all processes that were compared together."""

    @cached_property
    def rows(self) -> Mapping[tuple[str, str], ComparedRow]:
        """Step and phases of the first part by name, layers by path and class."""
        if self.comparison is None or not self.comparison.parts:
            return {}
        part = self.comparison.parts[0]
        return {("", row.name): row for row in (part.step, *part.phases)} | {
            (row.path or ".", row.name): row for row in part.layers
        }


def verdict_words(first: str, others: Sequence[BaselineComparison]) -> str:
    """`Against A: B 1.30x slower, C not significant.`; '' where none can be compared."""
    verdicts = []
    for other in others:
        step = other.rows.get(("", "step"))
        if step is not None:
            verdicts.append(f"{other.name} is {step.text}" if step.significant else f"{other.name}: {step.text}")
    return f"Against {first} per step: {', '.join(verdicts)}." if verdicts else ""


def phases_against(first: str, others: Sequence[BaselineComparison]) -> Table | None:
    """Step and phases: the time of the first run, and how every other compares; None where none can be compared."""
    keys = dict.fromkeys(key for other in others for key in other.rows if not key[0])
    return _table("", first, others, {key: key[1] for key in keys})


def layers_against(first: str, others: Sequence[BaselineComparison]) -> Table | None:
    """The same of layers, those that take most time in the first run first."""
    compared = {key: row for other in others for key, row in other.rows.items() if key[0]}
    keys = sorted(compared, key=lambda key: -(compared[key].a.value or 0.0))[:LIMIT]
    return _table("layer", first, others, {key: key[0] if key[0] != "." else f"({key[1]})" for key in keys})


def grey_insignificant(table: Table, others: Sequence[BaselineComparison]) -> Table:
    """The table of runs side by side; times that do not differ significantly from the first run's are greyed."""
    body = []
    for row in table.rows:
        cells = list(row)
        for place, other in [(at + 1, run) for run in others for at in run.columns]:
            compared = other.rows.get(("", row[0].text))
            if compared is not None and not compared.significant:
                hint = "; ".join(words for words in (cells[place].hint, f"{compared.text} against the first") if words)
                cells[place] = replace(cells[place], tone="quiet", hint=hint)
        body.append(tuple(cells))
    return replace(table, rows=tuple(body))


def _table(
    title: str, first: str, others: Sequence[BaselineComparison], names: Mapping[tuple[str, str], str]
) -> Table | None:  # fmt: skip
    compared = [other for other in others if other.rows]
    if not names or not compared:
        return None
    times = [next(other.rows[key].a for other in compared if key in other.rows) for key in names]
    unit, cells = numbers(times)
    columns: list[tuple[Column, Sequence[Cell]]] = [
        (Column(title, right=False, path=True), [Cell(name, name, tone="name") for name in names.values()]),
        (Column(f"{first} {unit}".rstrip(), hint=FIRST), cells),
    ]
    for other in compared:
        columns.append((Column(other.name, hint="95 % interval in each field's hint"),
                        [_ratio_cell(other.rows.get(key)) for key in names]))  # fmt: skip
    return build(columns, f"against {first}")


def _ratio_cell(row: ComparedRow | None) -> Cell:
    if row is None:
        return Cell(quantities.MISSING, None, "only one of the two runs has it", tone="quiet")
    if not quantities.known(row.ratio):
        return Cell(row.text, None, quantities.provenance(row.ratio), tone="quiet")
    if not row.significant:
        return quantity(row.ratio, row.text, "quiet")
    return quantity(row.ratio, row.text, "bad" if (row.ratio.value or 1.0) > 1 else "good")
