"""Layers of several targets under their ceilings, in one picture: the same network on different machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sonda.analysis.summary import LayerRow, Summary, Value
from sonda.report.blocks import Block, FigureBlock, Panel
from sonda.report.charts.chart import Chart, Points
from sonda.report.figures import ceiling_lines, largest_of, layer_marks, roofline_chart, roofline_rows
from sonda.report.palette import RUN_COLORS
from sonda.report.views.steps.figure_data import roofline_table

SYMBOLS = ("circle", "square", "diamond", "triangle-up", "star", "hexagon")
MOST_POINTS = 300
"""Points that are drawn of one target."""
CAPTION = (
    "Each mark is a layer on one target; colours and shapes tell targets apart. The area of a mark is its part of the "
    "target's time."
)
KINDS = "(solid: measured, dashed: theoretical)"


@dataclass(frozen=True)
class RooflineTarget:
    """One machine, or one way of using it, with what the layers did there."""

    name: str
    rows: Sequence[LayerRow]
    lines: Sequence[tuple[str, Value]]
    side: int | None = None
    """Its side of a comparison, 0 or 1: runs of one side have its colour. None: it is one of several."""


def targets_panels(summaries: Sequence[Summary], names: Sequence[str], sides: Sequence[int] = ()) -> list[Block]:
    """All targets in one roofline; none where fewer than two have layers with FLOPs, bytes and time."""
    from sonda.analysis.roofline import lines

    targets, without = [], []
    for summary, name, side in zip(summaries, names, sides or (None,) * len(names), strict=True):
        rows = roofline_rows(summary.parts[0].layers) if summary.parts else []
        if rows:
            targets.append(RooflineTarget(name, rows, lines(summary.ceilings), side))
        else:
            without.append(f"{name} is not in it: {_why_not(summary)}.")
    if len(targets) < 2:
        return []
    rows = [row for target in targets for row in target.rows]
    table = roofline_table(rows, [target.name for target in targets for _ in target.rows])
    most = max(len(target.rows) for target in targets)
    many = largest_of(MOST_POINTS, most, "layers of a target", "time")
    caption = " ".join([CAPTION + _ceilings_words(targets) + many, *without])
    return [Panel("Roofline of all targets", [FigureBlock(rooflines(targets), "rooflines", table)], caption)]


def _alike(targets: Sequence[RooflineTarget]) -> dict[tuple[tuple[str, Value], ...], list[int]]:
    """The ceilings, and the places of the targets that have them: one machine may be several targets."""
    by_ceilings: dict[tuple[tuple[str, Value], ...], list[int]] = {}
    for index, target in enumerate(targets):
        by_ceilings.setdefault(tuple(target.lines), []).append(index)
    return by_ceilings


def _ceilings_words(targets: Sequence[RooflineTarget]) -> str:
    """Whose the lines are."""
    groups = {lines: places for lines, places in _alike(targets).items() if lines}
    if not groups:
        return ""
    if len(targets) in map(len, groups.values()):
        return f" Lines are the ceilings of all of them {KINDS}."
    shared = ", those of several are drawn in ink" if any(len(places) > 1 for places in groups.values()) else ""
    return f" Lines of the same colour are that target's ceilings {KINDS}{shared}."


def _why_not(summary: Summary) -> str:
    """Why no layer of a target has a place in the picture."""
    leaves = [row.cost for row in summary.parts[0].layers if row.leaf] if summary.parts else []
    reasons = [value.reason for cost in leaves for value in (cost.achieved, cost.bytes, cost.flops) if value.reason]
    return reasons[0] if reasons else "no layer was seen"


def rooflines(targets: Sequence[RooflineTarget]) -> Chart:
    """Leaves of all targets as points under the ceilings of each, both axes logarithmic."""
    across = [row.cost.intensity.value or 0.0 for target in targets for row in target.rows]
    marks: list[Points] = []
    groups = _alike(targets)
    for index, (lines, places) in enumerate(groups.items()):
        whose = f"{', '.join(targets[place].name for place in places)}: " if len(groups) > 1 else ""
        color = _color(targets, places[0]) if len(places) == 1 else ""
        for line in ceiling_lines(lines, min(across), max(across)):
            named = _labelled(line, whose, index, len(groups)) if whose else line
            marks.append(replace(named, color=color, hints=tuple(f"{whose}{hint}" for hint in named.hints)))
    for index, target in enumerate(targets):
        rows = target.rows[:MOST_POINTS]
        longest = max(row.cost.time.value or 0.0 for row in rows) or 1.0
        color, symbol = _color(targets, index), SYMBOLS[index % len(SYMBOLS)]
        marks.append(layer_marks(target.name, color, symbol, rows, longest, f"{target.name}\n"))
    return roofline_chart(marks, "intensity, FLOP per byte (nominal)", 400)


def _color(targets: Sequence[RooflineTarget], place: int) -> str:
    side = targets[place].side
    return RUN_COLORS[(place if side is None else side) % len(RUN_COLORS)]


def _labelled(line: Points, whose: str, index: int, count: int) -> Points:
    """Ceilings of targets lie close together, so each is labelled at a place of its own: along a slope, over or under a
    flat roof."""
    known = [point for point in line.points if point is not None]
    (left, low), (right, high) = known[0], known[-1]
    label = whose + next(text for text in line.labels if text)
    if low == high:
        return replace(line, labels=("", label), sides=("left below" if index % 2 == 0 else "left above",))
    along = index / count
    middle = (left ** (1 - along) * right**along, low ** (1 - along) * high**along)
    hints = (line.hints[0],) * 3
    return replace(line, points=((left, low), middle, (right, high)), labels=("", label, ""), sides=("right below",),
                   hints=hints)  # fmt: skip
