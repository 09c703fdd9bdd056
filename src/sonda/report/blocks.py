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
| `Panel` | its title, its blocks, its caption | a box to open | as on a terminal |
| `VerdictBlock` | its blocks | a box | as on a terminal |
| `StackedBar` | parts of a whole in one bar, each with its own fill, and what they are | the same | the same |
| `Bars` | a line for each bar | a row for each bar | a row for each bar |
| `OneLine` | what fits in one line, and how many more there are | a paragraph | a line |
| `Aside` | its blocks, with -vv only | its blocks | its blocks |

A document for `--json` is no rendering of blocks: a view gives its fields beside its blocks, and `json.py` says why.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, Literal

from sonda.analysis import wording
from sonda.analysis.findings import Finding
from sonda.report.charts.chart import Chart
from sonda.report.charts.icicle import Icicle
from sonda.report.palette import REST
from sonda.report.table import Table
from sonda.report.words import brief_doubts, describe

ROWS = 10
"""Layers, kernels or points that a table lists unless told otherwise."""
FEW_ROWS = 5
"""Those that a glance shows."""

MOST_PARTS, LEAST_PART = 6, 0.01
"""Parts that one bar shows, and the share of the whole from which on one has a name."""


class Detail(IntEnum):
    """How much a screen says. Each level has all that the one before has to say, at greater length."""

    GLANCE = 0
    """What limits, what to try, where the time goes: at most 20 lines of 100 columns."""
    TABLES = 1
    """-v: the tables."""
    ALL = 2
    """-vv: counters, sensors that are missing, and footnotes too."""


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
    """A figure, and the `table` behind it. `place` is unique in a section; `absent` says why there is no figure."""

    figure: Chart | None
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
    """A tree as a figure, and the `table` of its nodes. `flat` offers to show the innermost nodes alone."""

    figure: Icicle | None
    place: str
    table: TableBlock
    flat: bool = False
    absent: str = ""


@dataclass(frozen=True)
class Panel:
    """Blocks that belong together, with a title and a caption. A reader of a page opens those that are not `opened`."""

    title: str
    blocks: Sequence[Block]
    caption: str = ""
    opened: bool = False


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


@dataclass(frozen=True)
class Bar:
    """A bar: the part of the whole that it stands for, with its name and its number as text."""

    name: str
    share: float
    """Its length, 0 to 1."""
    text: str
    about: str = ""
    """Stands behind the name: the type of a layer."""
    note: str = ""
    """Stands behind the number: what limits it."""
    least: float | None = None
    """Its length if it were as fast as the machine allows, which a page shows."""
    hint: str = ""
    """What the number is, with unit and source."""


@dataclass(frozen=True)
class StackedBar:
    """Parts of a whole in one bar. `whole` says what of and how much."""

    whole: str
    bars: Sequence[Bar]


@dataclass(frozen=True)
class Bars:
    """A line for each bar. What is as long as the longest, and at least `full`, fills the room."""

    bars: Sequence[Bar]
    paths: bool = True
    """Whether names lose their beginning where there is little room, as paths of modules do, or their end."""
    full: float = 0.0
    head: str = ""
    """What their shares are of, on a page and in a notebook."""


@dataclass(frozen=True)
class OneLine:
    """Several short things in one line, most important first: those that fit, and how many more there are."""

    items: Sequence[str]
    tone: Tone = ""


@dataclass(frozen=True)
class Aside:
    """Blocks that only a reader wants who asks for everything: `Detail.ALL`."""

    blocks: Sequence[Block]


Block = (
    Gap | Heading | Paragraph | Items | Advice | TableBlock | FigureBlock | Tree | Numbers | Facts | Legend | Fold
    | Panel | VerdictBlock | StackedBar | Bars | OneLine | Aside
)  # fmt: skip


def paragraphs(texts: Iterable[str], tone: Tone = "quiet") -> list[Block]:
    """A paragraph for each text."""
    return [Paragraph(text, tone) for text in texts]


def answer(found: Finding, remedy: Finding | None = None, warnings: Iterable[Finding] = ()) -> VerdictBlock:
    """The top of an experiment: what was found, what to try, where there is something, and what makes it doubtful."""
    advice = [Advice([Suggestion(describe(remedy))])] if remedy is not None else []
    return VerdictBlock([Paragraph(describe(found), "first"), *advice, *paragraphs(map(describe, warnings), "warning")])


def opening(title: str, found: Finding, remedy: Finding | None = None) -> list[Block]:
    """The top of a glance at an experiment: what ran on what, what was found, and what to try."""
    advice: list[Block] = [Advice([Suggestion(describe(remedy))])] if remedy is not None else []
    return [Heading(title), Gap(), Paragraph(describe(found), "first"), *advice]


def doubts(warnings: Iterable[Finding], part: str = "") -> list[Block]:
    """The end of a glance: all that makes a result doubtful in one line, what is said of `part` first."""
    texts = brief_doubts(warnings, part)
    return [Gap(), *([OneLine(texts, "warning")] if texts else [])]


def at_most(advice: Advice, most: int) -> Advice:
    """The first suggestions of these."""
    return replace(advice, suggestions=list(advice.suggestions)[:most])


def stack_parts(whole: str, parts: Iterable[tuple[str, float]]) -> StackedBar:
    """A bar of these parts, names with their shares, in their order. Those below 1 %, and the smallest of too many,
    are one: `the rest`."""
    named = [(name, share) for name, share in parts if share > 0]
    largest = sorted(named, key=lambda part: -part[1])
    small = {name for name, share in named if share < LEAST_PART}
    if len(named) - len(small) + bool(small) > MOST_PARTS:
        small |= {name for name, _ in largest[MOST_PARTS - 1 :]}
    if len(small) == 1:
        small = set()
    kept = [(name, share) for name, share in named if name not in small]
    rest = sum(share for name, share in named if name in small)
    shown = [*kept, *([(REST, rest)] if small else [])]
    return StackedBar(whole, [Bar(name, share, wording.percent(share)) for name, share in shown])


def at_detail(blocks: Iterable[Block], detail: Detail) -> list[Block]:
    """These blocks without what only a more detailed screen says: asides and footnotes of tables."""
    if detail >= Detail.ALL:
        return list(blocks)
    kept: list[Block] = []
    for block in blocks:
        match block:
            case Aside():
                continue
            case TableBlock():
                kept.append(replace(block, reasons=False))
            case _:
                kept.append(block)
    return kept


def _single_gaps(blocks: Sequence[Block]) -> list[Block]:
    """These blocks without a gap that follows another."""
    before = [None, *blocks[:-1]]
    return [block for block, last in zip(blocks, before, strict=True) if not isinstance(block, Gap) or block != last]


def next_line(run: str, counted: bool = False) -> Items:
    """Where to look next, of a run by the name to type; `counted` says that there are counters."""
    tables = f"tables: sonda show {run} -v" + (", counters: -vv" if counted else "")
    return Items([f"Run {run}", tables, f"page: sonda report {run}"])


def next_of_two(runs: str) -> Items:
    """The same of a comparison of two; their names may be long."""
    return Items([f"tables: sonda compare {runs} -v", f"page: sonda report {runs}"])


def saved_paragraph(runs: Sequence[str]) -> Paragraph:
    """Where to look next: the runs by the names to type, and their page."""
    names = " ".join(runs)
    return Paragraph(f"Saved as run{'' if len(runs) == 1 else 's'} {names}. Page: sonda report {names}")


class View(ABC):
    """What there is to say of a run of one kind. A new kind of run is a new view, and a line in `views/kinds.py`.

    `glance`, `tables` and `full` may differ in what they say and in which order: a screen is read from its top, a page
    searched.
    """

    kind = ""
    """What its document is about: `corun`, `energy`, …"""
    run = ""
    """Id of the run; '' of what is no run."""
    title = ""

    @abstractmethod
    def glance(self, rows: int = FEW_ROWS) -> list[Block]:
        """For a terminal or a notebook, first of all: what limits, what to try, the phases in a bar, so many layers or
        what stands for them, and doubts; at most 19 lines of 100 columns."""

    @abstractmethod
    def tables(self, rows: int = ROWS) -> list[Block]:
        """For a terminal, with -v and -vv; long tables have so many rows. What only -vv shows is in an `Aside`."""

    @abstractmethod
    def full(self) -> list[Block]:
        """For a page."""

    @abstractmethod
    def fields(self) -> dict[str, Any]:
        """What its document says beside kind, id and title, as plain JSON values: every number with unit and source, a
        missing one with its reason."""

    @property
    def label(self) -> str:
        """What a link to its section says."""
        return f"{self.title} ({self.run})"

    @property
    def counted(self) -> bool:
        """Whether it has counters, which only `Detail.ALL` shows."""
        return False

    def place(self, index: int) -> str:
        """Id of its section on a page, where its run has the number `index`."""
        return f"run{index}"

    def words(self, text: str) -> tuple[tuple[str, str], ...]:
        """Words that a reader of its section may not know, with their meanings. `text` is all that the section says."""
        return ()

    def text(
        self, width: int | None = None, rows: int | None = None, short: str = "", color: bool | None = None,
        detail: Detail = Detail.GLANCE,
    ) -> str:  # fmt: skip
        """As a terminal shows it. `width` None is the terminal's; `rows` None are those of the detail; `short` is the
        id to type."""
        from sonda.report.screen import render

        run = short or self.run
        if detail is Detail.GLANCE:
            blocks = _single_gaps([*self.glance(FEW_ROWS if rows is None else rows), next_line(run, self.counted)])
        else:
            tables = self.tables(ROWS if rows is None else rows)
            blocks = [*at_detail(tables, detail), saved_paragraph([run])]
        return render(blocks, width, color)

    def document(self) -> dict[str, Any]:
        """As plain JSON values; version of the documents and kind come first."""
        from sonda.report.json import document_of

        return document_of(self)

    def fragment(self, rows: int = FEW_ROWS) -> str:
        """As a notebook shows it: the glance."""
        from sonda.report.notebook import render_fragment

        where = OneLine([f"run {self.run}", "tables: .show(1)", 'page: .report("page.html")'], "quiet")
        return render_fragment([*self.glance(rows), *([where] if self.run else [])])
