"""Where in the program: lines of the user's code that take time outside of layers, and the tree that they form."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sonda.analysis.code.summary import (
    BESIDE,
    OTHER,
    OUTSIDE,
    WORKERS,
    CodeBranch,
    CodeFunction,
    CodeLead,
    CodeLine,
    CodeRegion,
    CodeSummary,
    CodeTime,
    PartCode,
    StepCollections,
)
from sonda.analysis.summary import Value
from sonda.report.blocks import Block, Gap, Panel, TableBlock
from sonda.report.table import Cell, Column, Table, build, numbers, percents
from sonda.report.values import Document, number_document, value_document
from sonda.report.words.code import name_doing

SHOWN = (OTHER, "data", WORKERS)
"""Regions whose lines a terminal shows: those that are in no layer."""
SMALLEST = 0.02
"""Lines that take less of the whole are left to the page."""
NAMES = {
    OTHER: "code in no phase",
    BESIDE: "code of other threads",
    WORKERS: "code of the loader's workers",
    OUTSIDE: "code in no step",
}
OF = {WORKERS: "% of workers", OUTSIDE: "% of program"}
CODE_MEANS = (
    "Stacks of the program's threads were sampled. Each row is a line of your own code with what it calls of "
    "libraries. Python holds the interpreter's lock, native code does not. A line of Python may be noted a little "
    "later than it ran, at the next call or turn of a loop."
)
MOST_LINES = 200
"""Rows of a table on a page."""


def code_blocks(code: PartCode | None, limit: int) -> list[Block]:
    """The longest lines in no layer, for a terminal."""
    blocks: list[Block] = []
    for region in code.regions if code is not None else ():
        lines = [line for line in region.lines if (line.share.value or 0.0) >= SMALLEST][:limit]
        if region.name in SHOWN and lines:
            blocks += [Gap(), TableBlock(lines_table(region, lines))]
    return blocks


def code_panels(code: PartCode | None) -> list[Block]:
    """All regions, for a page."""
    return [
        Panel(f"Where in the program: {_name(region)}", [TableBlock(tree_table(region)),
              TableBlock(lines_table(region, region.lines[:MOST_LINES]))], CODE_MEANS)
        for region in (code.regions if code is not None else ()) if region.lines
    ]  # fmt: skip


def outside_panels(code: CodeSummary | None) -> list[Block]:
    """What the program does outside of its steps, for a page."""
    region = code.outside if code is not None else None
    if region is None or not region.lines:
        return []
    tables: list[Block] = [TableBlock(tree_table(region)), TableBlock(lines_table(region, region.lines[:MOST_LINES]))]
    return [Panel(f"Where in the program: {_name(region)}", tables, CODE_MEANS)]


def lines_table(region: CodeRegion, lines: Sequence[CodeLine]) -> Table:
    """A row for each line."""
    unit, times = numbers([_total(line.time) for line in lines])
    names = [line.place.name for line in lines]
    texts = [line.text or line.called for line in lines]
    doing = [name_doing(line.time) for line in lines]
    return build(
        [
            (Column(_name(region), right=False), [Cell(name, name, tone="name") for name in names]),
            (Column(unit, hint="mean of a step, sampled"), times),
            (Column(OF.get(region.name, "%"), hint="share of the step, sampled"),
             percents([line.share for line in lines], sign=False)),
            (Column("expression", right=False, keep=4, wrap=True), [Cell(text, text) for text in texts]),
            (Column("doing", right=False, keep=3, wrap=True), [Cell(text, text) for text in doing]),
        ],
        "code",
    )  # fmt: skip


def tree_table(region: CodeRegion) -> Table:
    """The tree of lines, each with everything that it calls; a line below another is called by it."""
    rows = [row for branch in region.tree for row in branch.walk()]
    unit, times = numbers([_total(branch.time) for _, branch in rows])
    names = [f"{'· ' * depth}{branch.place.name}" for depth, branch in rows]
    return build(
        [
            (Column(f"{_name(region)}, by call", right=False), [Cell(name, name, tone="name") for name in names]),
            (Column(unit, hint="with all that it calls, mean of a step, sampled"), times),
            (Column(OF.get(region.name, "%"), hint="share of the step, sampled"),
             percents([branch.share for _, branch in rows], sign=False)),
            (Column("expression", right=False, keep=4, wrap=True),
             [Cell(branch.text, branch.text) for _, branch in rows]),
            (Column("doing", right=False, keep=3, wrap=True),
             [Cell(name_doing(branch.time), name_doing(branch.time)) for _, branch in rows]),
        ],
        "code-tree",
    )  # fmt: skip


def _name(region: CodeRegion) -> str:
    return NAMES.get(region.name, f"code in {region.name}")


def _total(time: CodeTime) -> Value:
    return Value(time.total, "ns", "measured")


# ---- documents -------------------------------------------------------------------------------------------------------


def part_code_fields(code: PartCode | None) -> Document:
    """What `--json` says of the code of a part."""
    if code is None:
        return {}
    return {
        "code": {
            "samples": code.samples,
            "regions": [_region(region) for region in code.regions],
            "functions": [_function(function) for function in code.functions],
            "causes": [{**_line(lead), "activity": lead.activity.value} for lead in code.causes],
            **({"collections": _collections(code.collections)} if code.collections is not None else {}),
        }
    }


def code_fields(code: CodeSummary | None) -> Document:
    """What `--json` says of the code outside of steps."""
    return {"code_outside": _region(code.outside)} if code is not None and code.outside is not None else {}


def _region(region: CodeRegion) -> Document:
    return {
        "name": region.name,
        **_measures(region.time, region.share),
        "leads": [_line(lead) for lead in region.leads],
        "lines": [_line(line) for line in region.lines],
        "functions": [_function(function) for function in region.functions],
        "tree": [_branch(branch) for branch in region.tree],
    }


def _line(line: CodeLine | CodeLead) -> Document:
    return {**_place(line), "text": line.text, "called": line.called, **_measures(line.time, line.share)}


def _function(function: CodeFunction) -> Document:
    return {
        **_place(function),
        **_measures(function.inclusive, function.share),
        "own": _measures(function.own, None),
        "called": _times(function.called),
        "phases": _times(function.phases.items()),
        "layers": _times(function.layers),
    }


def _branch(branch: CodeBranch) -> Document:
    return {
        **_place(branch),
        "text": branch.text,
        **_measures(branch.time, branch.share),
        "branches": [_branch(below) for below in branch.branches],
    }


def _place(at: CodeLine | CodeLead | CodeFunction | CodeBranch) -> Document:
    return {"file": at.place.file, "line": at.place.line, "function": at.place.function}


def _measures(time: CodeTime, share: Value | None) -> Document:
    kinds = {"time": time.total, "python": time.python, "native": time.native, "waiting": time.waiting, "ran": time.ran}
    return {
        **({"share": value_document(share)} if share is not None else {}),
        **{name: number_document(value, "ns", "measured") for name, value in kinds.items()},
        "doing": time.doing.value,
        "calls": _times(time.calls),
        "samples": time.samples,
        "steps": time.steps,
    }


def _times(times: Iterable[tuple[str, float]]) -> Document:
    return {name: number_document(time, "ns", "measured") for name, time in times}


def _collections(collections: StepCollections) -> Document:
    return {
        "count": value_document(collections.count),
        "time": value_document(collections.time),
        "share": value_document(collections.share),
    }
