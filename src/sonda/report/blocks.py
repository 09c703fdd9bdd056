"""Blocks: what there is to say, as plain data. A view gives a list of them; terminal, page and notebook render any.

| block | terminal (`screen.py`) | page (`markup.py`) | notebook (`notebook.py`) |
|---|---|---|---|
| `Gap` | an empty line | nothing | nothing |
| `Heading` | a bold line | a heading, its detail below | a bold line |
| `Paragraph` | lines, coloured by its tone | a paragraph | a line |
| `Items` | `lead a · b · c` | a list | a line |
| `Advice` | `Try: a · b` | What to try, as a list | `Try: a · b` |
| `TableBlock` | the columns that fit | all columns, to sort and copy | the first rows |
| `FigureBlock` | the table behind it | the picture, the table behind it | the table behind it |
| `Tree` | the table of its nodes | the picture, the table of its nodes | the table of its nodes |
| `Numbers` | `name number · name number` | numbers with tooltips | a line |
| `Legend`, `Facts` | a line for each name | a list to open | a line for each name |
| `Fold` | its title, its blocks | a title to open | as on a terminal |
| `Panel`, `VerdictBlock` | its title, its blocks, its caption | a box | as on a terminal |

A document for `--json` is no rendering of blocks: a view gives its fields beside its blocks, and `json.py` says why.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sonda.analysis.findings import Finding
from sonda.report.table import Table
from sonda.report.words import describe

ROWS = 10
"""Layers, kernels or points that are listed unless told otherwise."""

Tone = Literal["", "first", "quiet", "soft", "warning", "remark", "bad", "first bad", "small"]
"""`first` is what was found, `warning` what makes it doubtful (`! …` on a terminal), `remark` what a reader should
notice, `bad` what failed; `quiet` and `soft` are beside the point, `quiet` and `small` in smaller letters."""


@dataclass(frozen=True)
class Gap:
    """Room between blocks, where nothing else divides them."""


@dataclass(frozen=True)
class Heading:
    """The name of what follows. Level 1 is a run's own: smaller on a page of several runs."""

    text: str
    detail: str = ""
    level: int = 1


@dataclass(frozen=True)
class Paragraph:
    """A sentence or several. On a terminal it is indented, and by `hang` more after its first line."""

    text: str
    tone: Tone = ""
    indent: int = 2
    hang: int = 2


@dataclass(frozen=True)
class Items:
    """Several short things, after `lead` where they stand in a line."""

    items: Sequence[str]
    lead: str = ""
    separator: str = " · "
    tone: Literal["", "quiet"] = "quiet"
    """Tone of the list on a page."""


@dataclass(frozen=True)
class Suggestion:
    """Something to try. `options` are those of the command line; `result` is what it brought where it was tried."""

    text: str
    options: str = ""
    result: str = ""

    @property
    def words(self) -> str:
        """`--threads 2  1.63x (measured)` where it was tried; else the text, behind the options where there are any."""
        if self.result:
            return f"{self.options or self.text}  {self.result}"
        return f"{self.options} ({self.text})" if self.options else self.text


@dataclass(frozen=True)
class Advice:
    """What to try, and `how`."""

    suggestions: Sequence[Suggestion]
    how: str = ""


@dataclass(frozen=True)
class TableBlock:
    """A table. On a terminal the `reasons` of missing numbers stand below it. On a page `look` names its classes,
    `place` is its id, and a `tall` table scrolls."""

    table: Table
    indent: int = 2
    reasons: bool = True
    look: str = "sortable"
    tall: bool = False
    place: str = ""


@dataclass(frozen=True)
class FigureBlock:
    """A figure as Plotly has it, and the `table` behind it. `place` is unique in a section; `absent` says why there is
    no figure."""

    figure: dict[str, Any] | None
    place: str
    table: Table | None = None
    absent: str = ""


@dataclass(frozen=True)
class Number:
    """A number as text with its name. `hint` has its unit, source and interval; `note` stands behind it."""

    name: str
    text: str
    hint: str = ""
    note: str = ""
    estimated: bool = False
    """Whether it is a guess with bounds, which a page hatches."""


@dataclass(frozen=True)
class Numbers:
    """Numbers by name: the `evidence` that a verdict rests on, or `facts` that are read before all others."""

    numbers: Sequence[Number]
    kind: Literal["evidence", "facts"] = "evidence"


@dataclass(frozen=True)
class Legend:
    """What names in a picture or table mean."""

    meanings: Mapping[str, str]


@dataclass(frozen=True)
class Facts:
    """Names with what is known of each, in words. A reader of a page opens them by their `title`."""

    title: str
    facts: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Tree:
    """A tree as a figure, and the `table` of its nodes. A reader chooses by which of `widths` its fields are as wide.

    `colors` are pairs of a meaning and its colour. `flat` offers to show the innermost nodes alone.
    """

    figure: dict[str, Any] | None
    place: str
    table: TableBlock
    widths: Sequence[str] = ()
    colors: Sequence[tuple[str, str]] = ()
    flat: bool = False
    absent: str = ""


@dataclass(frozen=True)
class Panel:
    """Blocks that belong together, with a title and a caption."""

    title: str
    blocks: Sequence[Block]
    caption: str = ""


@dataclass(frozen=True)
class Fold:
    """Blocks that a reader of a page opens by their title."""

    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class VerdictBlock:
    """What was found, what it rests on, what to try and what makes it doubtful; `kind` is what limits."""

    blocks: Sequence[Block]
    kind: str = ""


Block = (
    Gap | Heading | Paragraph | Items | Advice | TableBlock | FigureBlock | Tree | Numbers | Facts | Legend | Fold
    | Panel | VerdictBlock
)  # fmt: skip


def paragraphs(texts: Iterable[str], tone: Tone = "quiet") -> list[Block]:
    """A paragraph for each text."""
    return [Paragraph(text, tone) for text in texts]


def answer(found: Finding, remedy: Finding | None = None, warnings: Iterable[Finding] = ()) -> VerdictBlock:
    """The top of an experiment: what was found, what to try, where there is something, and what makes it doubtful."""
    advice = [Advice([Suggestion(describe(remedy))])] if remedy is not None else []
    return VerdictBlock([Paragraph(describe(found), "first"), *advice, *paragraphs(map(describe, warnings), "warning")])


def saved_paragraph(runs: Sequence[str]) -> Paragraph:
    """Where to look next: the runs by the names to type, and their page."""
    names = " ".join(runs)
    return Paragraph(f"Saved as run{'' if len(runs) == 1 else 's'} {names}. Page: sonda report {names}")


class View(ABC):
    """What there is to say of a run of one kind. A new kind of run is a new view, and a line in `views/kinds.py`.

    `brief` and `full` may differ in what they say and in which order: a screen is read from its top, a page searched.
    """

    kind = ""
    """What its document is about: `corun`, `energy`, …"""
    run = ""
    """Id of the run; '' of what is no run."""
    title = ""

    @abstractmethod
    def brief(self, rows: int = ROWS) -> list[Block]:
        """For a terminal; long tables have so many rows."""

    @abstractmethod
    def full(self) -> list[Block]:
        """For a page."""

    @abstractmethod
    def fields(self) -> dict[str, Any]:
        """What its document says beside kind, id and title, as plain JSON values: every number with unit and source, a
        missing one with its reason."""

    def for_notebook(self, rows: int = ROWS) -> list[Block]:
        """For a notebook: what a terminal shows, unless a view says less there."""
        return self.brief(rows)

    @property
    def label(self) -> str:
        """What a link to its section says."""
        return f"{self.title} ({self.run})"

    def place(self, index: int) -> str:
        """Id of its section on a page, where its run has the number `index`."""
        return f"run{index}"

    def words(self, text: str) -> tuple[tuple[str, str], ...]:
        """Words that a reader of its section may not know, with their meanings. `text` is all that the section says."""
        return ()

    def text(self, width: int | None = None, rows: int = ROWS, short: str = "", color: bool | None = None) -> str:
        """As a terminal shows it. `width` None is the terminal's; `short` is the id to type."""
        from sonda.report.screen import render

        return render([*self.brief(rows), saved_paragraph([short or self.run])], width, color)

    def document(self) -> dict[str, Any]:
        """As plain JSON values; version of the documents and kind come first."""
        from sonda.report.json import document_of

        return document_of(self)

    def fragment(self, rows: int = ROWS) -> str:
        """As a notebook shows it."""
        from sonda.report.notebook import render_fragment

        return render_fragment(self.for_notebook(rows))
