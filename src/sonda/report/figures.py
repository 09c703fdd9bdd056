"""The figures of a page, as plain Plotly descriptions: `data` and `layout` without colours of the theme.

The page's script adds background, grid and text colours for light and dark. All text is escaped, because Plotly reads
tags in labels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from sonda.analysis.bounds import part_of_step
from sonda.analysis.summary import LayerRow, PartSummary, Summary, Value
from sonda.report import quantities
from sonda.report.cost_quantities import shown_in
from sonda.report.labels import markup
from sonda.report.palette import BOUND_COLORS, PHASE_COLORS, SPARE_COLORS, STACK_COLORS, SYMBOLS
from sonda.report.views.steps.tables import layer_hint, layer_name

Figure = dict[str, Any]

MOST_STACKS = 40
MOST_BARS = 200
MOST_STEPS = 4000
MOST_POINTS = 2000


def phases_over_steps(part: PartSummary) -> Figure | None:
    """Time of every phase in every step, stacked, warm-up shaded; None where no step was seen.

    Long runs are drawn as areas, and beyond 4,000 steps as means of neighbouring steps, said in the axis title.
    """
    if not part.durations:
        return None
    count = len(part.durations)
    group = math.ceil(count / MOST_STEPS)
    scale = quantities.common_scale(part.durations, "ns")
    bars = count <= MOST_BARS
    positions = [start + 1 + (min(group, count - start) - 1) / 2 for start in range(0, count, group)]
    data = []
    for index, (name, values) in enumerate(part.phase_steps.items()):
        heights = _means([value / scale.factor for value in values], group)
        color = phase_color(name, index)
        shape = (
            {"type": "bar", "marker": {"color": color, "line": {"width": 0}}}
            if bars
            else {"type": "scatter", "mode": "none", "stackgroup": "steps", "fillcolor": color}
        )
        where = "step %{x:.0f}" if group == 1 else f"mean of {group} steps, around %{{x:.0f}}"
        hover = f"{markup(name)} %{{y:.4~g}} {scale.unit} (measured)<extra>{where}</extra>"
        data.append({**shape, "name": markup(name), "x": positions, "y": heights, "hovertemplate": hover})
    title = "step" if group == 1 else f"step (means of {group} neighbours)"
    layout: Figure = {
        "barmode": "stack",
        "bargap": 0.08 if bars else 0,
        "showlegend": True,
        "xaxis": {"title": {"text": title}, "range": [0.5, count + 0.5], "tickformat": "d"},
        # Room above the bars for the word over the warm-up.
        "yaxis": {"title": {"text": f"time, {scale.unit}"}, "range": [0, 1.15 * max(part.durations) / scale.factor]},
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
        "height": 340,
    }
    if count < 12:
        layout["xaxis"]["dtick"] = 1
    shaded = _stretches(sorted(part.set_apart))[:MOST_BARS]
    if shaded:
        layout["shapes"] = [
            {"type": "rect", "xref": "x", "yref": "paper", "x0": first + 0.5, "x1": last + 1.5, "y0": 0, "y1": 1,
             "fillcolor": "#8d949c", "opacity": 0.22, "line": {"width": 0}, "layer": "above"}
            for first, last in shaded
        ]  # fmt: skip
        layout["annotations"] = [
            {"x": shaded[0][0] + 0.5, "y": 1, "xref": "x", "yref": "paper", "xanchor": "left", "yanchor": "top",
             "text": "warm-up", "showarrow": False, "font": {"size": 11}}
        ]  # fmt: skip
    return {"data": data, "layout": layout}


def steps_caption(part: PartSummary) -> str:
    """What the picture of phases over steps shows: bars, or an area where there are too many steps for bars."""
    shape = "One bar for every step" if len(part.durations) <= MOST_BARS else "Every step as a part of the area"
    group = math.ceil(len(part.durations) / MOST_STEPS)
    if group > 1:
        shape = f"Every {group} neighbouring steps by their mean"
    shaded = "; shaded ones are warm-up and count nowhere" if part.set_apart else ""
    return f"{shape}, in the order in which they ran{shaded}."


def largest_of(most: int, count: int, noun: str, what: str) -> str:
    """The end of a caption where a picture has no room for all; '' where it has."""
    return f" Of {count:,} {noun} the picture has the {most:,} with the most {what}." if count > most else ""


def _stretches(places: Sequence[int]) -> list[tuple[int, int]]:
    """First and last of the neighbours among places in order."""
    stretches: list[tuple[int, int]] = []
    for place in places:
        if stretches and stretches[-1][1] == place - 1:
            stretches[-1] = stretches[-1][0], place
        else:
            stretches.append((place, place))
    return stretches


def roofline(rows: Sequence[LayerRow], lines: Sequence[tuple[str, Value]]) -> Figure | None:
    """Leaves as points under the ceilings, both axes logarithmic; None where no leaf has FLOPs, bytes and time.

    `lines` are the ceilings as (name, value): FLOP/s are flat roofs, B/s are slopes. Points are sized by time.
    """
    points = roofline_rows(rows)[:MOST_POINTS]
    if not points:
        return None
    intensity = [row.cost.intensity.value or 0.0 for row in points]
    achieved = [row.cost.executed_rate.value or 0.0 for row in points]
    longest = max(row.cost.time.value or 0.0 for row in points) or 1.0
    data = ceiling_lines(lines, min(intensity), max(intensity))
    across = axis_ends([*intensity, *(x for line in data for x in line["x"])])
    upright = axis_ends([*achieved, *(y for line in data for y in line["y"])])
    for bound, color in {**STACK_COLORS, **BOUND_COLORS}.items():
        chosen = [index for index, row in enumerate(points) if row.cost.bound == bound]
        if not chosen:
            continue
        name = f"{bound}-bound" if bound in BOUND_COLORS else f"mostly {bound}"
        data.append({
            "type": "scatter", "mode": "markers", "name": name if bound else "no clear bound",
            "x": [intensity[index] for index in chosen],
            "y": [points[index].cost.executed_rate.value for index in chosen],
            # The area is the time; 5 px keeps the smallest visible.
            "marker": {"color": color, "symbol": SYMBOLS[bound], "opacity": 0.75,
                       "line": {"width": 1, "color": "rgba(255,255,255,.6)"},
                       "size": [5 + 25 * math.sqrt((points[i].cost.time.value or 0.0) / longest) for i in chosen]},
            "text": [layer_words(points[index]) for index in chosen],
            "hovertemplate": "%{text}<br>intensity %{x:.3~g} FLOP/B, derived<extra></extra>",
        })  # fmt: skip
    layout = {
        "xaxis": {"type": "log", "title": {"text": "intensity, FLOP per byte (nominal)"}, **axis_ticks(across, "1")},
        "yaxis": {"type": "log", "title": {"text": "achieved"}, **axis_ticks(upright, "FLOP/s")},
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom"},
        "height": 440,
    }
    return {"data": data, "layout": layout}


def roofline_rows(rows: Sequence[LayerRow]) -> list[LayerRow]:
    """The leaves that have a place under a roofline, most time first."""
    points = [row for row in rows if row.leaf and _positive(row.cost.flops, row.cost.bytes, row.cost.achieved)]
    return sorted(points, key=lambda row: -(row.cost.time.value or 0.0))


def phase_bars(summaries: Sequence[Summary], names: Sequence[str], cycles: bool = False) -> Figure | None:
    """Median time of every phase, or its cycles, one stacked bar per run; None where there are none to draw."""
    parts = [summary.parts[0] if summary.parts else None for summary in summaries]
    times = [phase_values(part, cycles) if part else {} for part in parts]
    phases = list(dict.fromkeys(name for known in times for name in known))
    if not phases:
        return None
    scale = quantities.common_scale(
        (sum(value.value or 0.0 for value in known.values()) for known in times), "cycle" if cycles else "ns"
    )
    # Equal names would be stacked into one bar, so bars stand at their positions and names label the ticks.
    places = list(range(len(names)))
    data = []
    for index, phase in enumerate(phases):
        values = [known.get(phase) for known in times]
        data.append({
            "type": "bar", "orientation": "h", "name": markup(phase), "y": places,
            "x": [value.value / scale.factor if value and value.value is not None else None for value in values],
            "marker": {"color": phase_color(phase, index)},
            "hovertext": [f"{markup(phase)}: {markup(quantities.provenance(value))}" for value in values],
            "hoverinfo": "text",
        })  # fmt: skip
    layout = {
        "barmode": "stack",
        "xaxis": {"title": {"text": f"{scale.unit}s per step" if cycles else f"median time per step, {scale.unit}"},
                  "rangemode": "tozero"},
        "yaxis": {"tickvals": places, "ticktext": [markup(name) for name in names], "autorange": "reversed",
                  "automargin": True},
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
        "height": 130 + 46 * len(names),
    }  # fmt: skip
    return {"data": data, "layout": layout}


def in_cycles(summaries: Sequence[Summary]) -> list[bool]:
    """Which of these runs only cycles can be drawn of; all of them where all are simulated and one has no clock."""
    parts = [summary.parts[0] if summary.parts else None for summary in summaries]
    simulated = [part is not None and part.simulated is not None for part in parts]
    clockless = [is_simulated and part is not None and not quantities.known(part.step)
                 for is_simulated, part in zip(simulated, parts, strict=True)]  # fmt: skip
    return simulated if all(simulated) and any(clockless) else clockless


def phase_values(part: PartSummary, cycles: bool) -> dict[str, Value]:
    """What each phase took, where that is known."""
    if cycles:
        return {row.name: row.simulated.cycles for row in part.phases if row.simulated is not None}
    return {row.name: row.cost.time for row in part.phases if quantities.known(row.cost.time)}


def cycle_stacks(rows: Sequence[LayerRow]) -> Figure | None:
    """What the own cycles of these layers are spent on, one stacked bar each, in their order; None without any."""
    stacked = [(row, row.own_simulated) for row in rows[:MOST_STACKS] if row.own_simulated is not None]
    if not stacked:
        return None
    scale = quantities.common_scale((simulated.cycles.value for _, simulated in stacked), "cycle")
    places = list(range(len(stacked)))
    data = []
    for part in stacked[0][1].stack:
        values = [simulated.stack[part] for _, simulated in stacked]
        data.append({
            "type": "bar", "orientation": "h", "name": part, "y": places,
            "x": [(value.value or 0.0) / scale.factor for value in values],
            "marker": {"color": STACK_COLORS[part]},
            "hovertext": [f"{markup(layer_name(row))}: {quantities.whole(value.value or 0.0)} cycles in {part}, "
                          "simulated"
                          for (row, _), value in zip(stacked, values, strict=True)],
            "hoverinfo": "text",
        })  # fmt: skip
    layout = {
        "barmode": "stack",
        "xaxis": {"title": {"text": f"cycles per step, {scale.unit}s"}, "rangemode": "tozero"},
        "yaxis": {"tickvals": places, "ticktext": [markup(layer_name(row)) for row, _ in stacked],
                  "autorange": "reversed", "automargin": True},
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
        "height": 130 + 24 * len(stacked),
    }  # fmt: skip
    return {"data": data, "layout": layout}


def phase_color(name: str, index: int) -> str:
    """The colour of a phase, the same in every figure."""
    return PHASE_COLORS.get(name, SPARE_COLORS[index % len(SPARE_COLORS)])


def layer_words(row: LayerRow) -> str:
    """Everything about a layer, one line each, for the hover box."""
    cost = row.cost
    lines = [
        f"<b>{markup(layer_name(row))}</b>",
        markup(layer_hint(row)),
        f"forward {markup(quantities.provenance(row.forward))}",
        f"backward {markup(quantities.provenance(row.backward))}",
        f"{quantities.percent(part_of_step(cost.share).value, 1)} % of the step, derived",
        *(f"{shown.label} {markup(quantities.provenance(shown.value(cost)))}" for shown in shown_in("hover")),
    ]
    if quantities.known(cost.roof):
        bound = f", {cost.bound}-bound" if cost.bound else ""
        lines.append(f"{quantities.percent(cost.roof.value)} % of roof, {cost.roof.source}{markup(bound)}")
    return "<br>".join(lines)


def ceiling_lines(lines: Sequence[tuple[str, Value]], least: float, most: float) -> list[Figure]:
    """The roofs over intensities from `least` to `most`: measured ones solid, others dashed, each kind by itself."""
    drawn: list[Figure] = []
    kinds = [[line for line in lines if (line[1].source == "measured") == measured] for measured in (True, False)]
    for kind in kinds:
        peaks = [(name, value) for name, value in kind if value.unit == "FLOP/s" and _positive(value)]
        slopes = [(name, value) for name, value in kind if value.unit == "B/s" and _positive(value)]
        if peaks and not slopes:  # a memory without limit
            drawn += [
                _line(name, value, [least / 2, most * 2], [value.value or 0.0] * 2, False) for name, value in peaks
            ]
        if not peaks or not slopes:
            continue
        top = max(value.value or 0.0 for _, value in peaks)
        steepest = max(value.value or 0.0 for _, value in slopes)
        ridges = [top / (value.value or 1.0) for _, value in slopes]
        left, right = min(least, *ridges) / 2, max(most, *ridges) * 2
        # Labels of measured roofs keep clear of the theoretical ones above them.
        below = bool(kinds[1]) and kind is kinds[0]
        for name, value in peaks:
            height = value.value or 0.0
            drawn.append(_line(name, value, [height / steepest, right], [height, height], below))
        for name, value in slopes:
            speed = value.value or 0.0
            drawn.append(_line(name, value, [left, top / speed], [left * speed, top], not kinds[1] or below))
    return drawn


def axis_ends(values: Sequence[float]) -> tuple[float, float]:
    """The ends of a logarithmic axis that holds these values with some room, at least one decade long."""
    low, high = min(values) / 1.6, max(values) * 1.9
    short = math.sqrt(max(1.0, 10 / (high / low)))
    return low / short, high * short


def axis_ticks(ends: tuple[float, float], unit: str) -> Figure:
    """Range and labels of a logarithmic axis: 1, 2, 5 of each decade, or only 1 where there are many decades."""
    low, high = math.log10(ends[0]), math.log10(ends[1])
    digits = (1, 2, 5) if high - low < 3 else (1,)
    values = [digit * 10.0**decade for decade in range(math.floor(low), math.ceil(high) + 1) for digit in digits]
    shown = [value for value in values if ends[0] <= value <= ends[1]]
    texts = [f"{value / (scale := quantities.own_scale(value, unit)).factor:g} {scale.unit}".strip() for value in shown]
    return {"range": [low, high], "tickvals": shown, "ticktext": texts}


def _line(name: str, value: Value, x: list[float], y: list[float], below: bool) -> Figure:
    label = f"{markup(name)} {markup(quantities.amount(value.value, value.unit))}"
    # Flat roofs are labelled where they end, slopes where they begin; theoretical ones, which lie close by, half-way.
    texts = [label, ""] if y[0] != y[1] else ["", label]
    if y[0] != y[1] and value.source != "measured":
        x, y = [x[0], math.sqrt(x[0] * x[1]), x[1]], [y[0], math.sqrt(y[0] * y[1]), y[1]]
        texts = ["", label, ""]
    return {
        "type": "scatter", "mode": "lines+text", "name": label, "x": x, "y": y, "showlegend": False,
        "text": texts,
        "textposition": f"{'bottom' if below or len(x) == 3 else 'top'} {'right' if y[0] != y[1] else 'left'}",
        "line": {"width": 2, "dash": "solid" if value.source == "measured" else "dash"}, "meta": "ceiling",
        "hovertemplate": f"{markup(name)}: {markup(quantities.provenance(value))}<extra></extra>",
    }  # fmt: skip


def _means(values: list[float], group: int) -> list[float]:
    if group == 1:
        return values
    return [
        sum(chunk) / len(chunk) for start in range(0, len(values), group) if (chunk := values[start : start + group])
    ]


def _positive(*values: Value) -> bool:
    return all(quantities.known(value) and (value.value or 0.0) > 0 for value in values)
