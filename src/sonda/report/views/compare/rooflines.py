"""Layers of several targets under their ceilings, in one picture: the same network on different machines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sonda.analysis.summary import LayerRow, Summary, Value
from sonda.report.blocks import Block, FigureBlock, Panel
from sonda.report.figures import (
    Figure,
    axis_ends,
    axis_ticks,
    ceiling_lines,
    largest_of,
    layer_words,
    roofline_rows,
)
from sonda.report.labels import markup
from sonda.report.palette import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION
from sonda.report.views.steps.figure_data import roofline_table

COLORS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "star", "hexagon")
MOST_POINTS = 1000
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


def targets_panels(summaries: Sequence[Summary], names: Sequence[str]) -> list[Block]:
    """All targets in one roofline; none where fewer than two have layers with FLOPs, bytes and time."""
    from sonda.analysis.roofline import lines

    targets, without = [], []
    for summary, name in zip(summaries, names, strict=True):
        rows = roofline_rows(summary.parts[0].layers) if summary.parts else []
        if rows:
            targets.append(RooflineTarget(name, rows, lines(summary.ceilings)))
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


def rooflines(targets: Sequence[RooflineTarget]) -> Figure:
    """Leaves of all targets as points under the ceilings of each, both axes logarithmic."""
    across = [row.cost.intensity.value or 0.0 for target in targets for row in target.rows]
    data: list[Figure] = []
    groups = _alike(targets)
    for index, (lines, places) in enumerate(groups.items()):
        whose = f"{markup(', '.join(targets[place].name for place in places))}: " if len(groups) > 1 else ""
        color = COLORS[places[0] % len(COLORS)]
        for line in ceiling_lines(lines, min(across), max(across)):
            label = f"{whose}{line['name']}"
            own = {"meta": "target", "line": {**line["line"], "color": color}, "textfont": {"color": color, "size": 12}}
            data.append({
                **line, **(own if len(places) == 1 else {}),
                **(_labelled(line, label, index, len(groups)) if whose else {}), "name": label,
                "hovertemplate": f"{whose}{line['hovertemplate']}",
            })  # fmt: skip
    roofs = [(line["x"], line["y"]) for line in data]
    for index, target in enumerate(targets):
        rows = target.rows[:MOST_POINTS]
        longest = max(row.cost.time.value or 0.0 for row in rows) or 1.0
        data.append({
            "type": "scatter", "mode": "markers", "name": markup(target.name),
            "x": [row.cost.intensity.value for row in rows], "y": [row.cost.executed_rate.value for row in rows],
            "marker": {"color": COLORS[index % len(COLORS)], "symbol": SYMBOLS[index % len(SYMBOLS)], "opacity": 0.7,
                       "line": {"width": 1, "color": "rgba(255,255,255,.6)"},
                       "size": [5 + 25 * math.sqrt((row.cost.time.value or 0.0) / longest) for row in rows]},
            "text": [f"{markup(target.name)}<br>{layer_words(row)}" for row in rows],
            "hovertemplate": "%{text}<br>intensity %{x:.3~g} FLOP/B, derived<extra></extra>",
        })  # fmt: skip
    achieved = [row.cost.executed_rate.value or 0.0 for target in targets for row in target.rows]
    ends = axis_ends([*across, *(x for xs, _ in roofs for x in xs)])
    upright = axis_ends([*achieved, *(y for _, ys in roofs for y in ys)])
    layout = {
        "xaxis": {"type": "log", "title": {"text": "intensity, FLOP per byte (nominal)"}, **axis_ticks(ends, "1")},
        "yaxis": {"type": "log", "title": {"text": "achieved"}, **axis_ticks(upright, "FLOP/s")},
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom"},
        "height": 500,
    }
    return {"data": data, "layout": layout}


def _labelled(line: Figure, label: str, index: int, count: int) -> Figure:
    """Ceilings of targets lie close together, so each is labelled at a place of its own: along a slope, over or under a
    flat roof."""
    left, right, low, high = line["x"][0], line["x"][-1], line["y"][0], line["y"][-1]
    if low == high:
        return {"text": ["", label], "textposition": f"{'bottom' if index % 2 == 0 else 'top'} left"}
    along = index / count
    x = [left, left ** (1 - along) * right**along, right]
    y = [low, low ** (1 - along) * high**along, high]
    return {"x": x, "y": y, "text": ["", label, ""], "textposition": "bottom right"}
