"""The figures of a run: phases over steps, the roofline, phases and cycles as stacked bars."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sonda.analysis.bounds import part_of_step
from sonda.analysis.summary import LayerRow, PartSummary, Summary, Value
from sonda.report import quantities
from sonda.report.charts.axes import log_axis
from sonda.report.charts.chart import (
    Axis,
    BarPart,
    Chart,
    Mark,
    Place,
    Plot,
    Points,
    Shade,
    Side,
    Strip,
    stacked_bars,
    stacked_columns,
)
from sonda.report.cost_quantities import shown_in
from sonda.report.palette import BOUND_COLORS, STACK_COLORS, SYMBOLS, part_colors
from sonda.report.views.steps.tables import layer_hint, layer_name

MOST_STACKS = 40
MOST_BARS = 200
MOST_STEPS = 800
"""Columns of a figure: it is about as many px wide."""
MOST_POINTS = 400
CUT = 3.0
"""Times the longest timed step at which columns of warm-up end."""
COLUMN = 0.46
"""Half of the width of a step's column."""


def phases_over_steps(part: PartSummary) -> Chart | None:
    """Time of every phase in every step, stacked, warm-up shaded; None where no step was seen.

    Long runs are drawn as areas, and beyond 800 steps as means of neighbouring steps, said in the axis title.
    """
    if not part.durations:
        return None
    count = len(part.durations)
    group = math.ceil(count / MOST_STEPS)
    scale = quantities.common_scale([highest_step(part)], "ns")
    stretches = group_steps(count, group)
    columns = [
        (name, color, means([value / scale.factor for value in values], group))
        for color, (name, values) in zip(part_colors(part.phase_steps), part.phase_steps.items(), strict=True)
    ]
    edges = [(first - COLUMN, last + COLUMN) for first, last in stretches]
    shades = [Shade(first + 0.5, last + 1.5, "" if number else "warm-up")
              for number, (first, last) in enumerate(_stretches(sorted(part.set_apart))[:MOST_BARS])]  # fmt: skip
    marks: tuple[Mark, ...] = (*stacked_columns(edges, columns, count > MOST_BARS), *shades)
    strips = []
    for at, stretch in enumerate(stretches):
        lines = [f"{name} {quantities.number(heights[at])} {scale.unit}" for name, _, heights in columns if heights[at]]
        hint = "\n".join([f"{step_words(stretch)}, measured", *lines])
        strips.append(Strip(stretch[0] - 0.5, stretch[1] + 0.5, hint))
    # Room above the columns for the word over the warm-up.
    top = 1.15 * highest_step(part) / scale.factor
    field = Plot(Axis(f"time, {scale.unit}", ends=(0, top)), marks)
    title = "step" if group == 1 else f"step (means of {group} neighbours)"
    return Chart(Axis(title, ends=(0.5, count + 0.5), whole=True), (field,), 240, tuple(strips), legend=True)


def highest_step(part: PartSummary) -> float:
    """ns that the axis reaches: the longest step, unless warm-up is so long that nothing else would be seen."""
    timed = max((time for at, time in enumerate(part.durations) if at not in part.set_apart), default=0.0)
    longest = max(part.durations)
    return longest if longest < CUT * timed or not timed else CUT * timed


def group_steps(count: int, group: int) -> list[tuple[int, int]]:
    """First and last of so many neighbouring steps of `count`, from 1 on."""
    return [(start + 1, min(start + group, count)) for start in range(0, count, group)]


def step_words(stretch: tuple[int, int], noun: str = "step") -> str:
    """`step 3`, `steps 4 to 6, mean`."""
    first, last = stretch
    return f"{noun} {first:,}" if first == last else f"{noun}s {first:,} to {last:,}, mean"


def steps_caption(part: PartSummary) -> str:
    """What the picture of phases over steps shows: bars, or an area where there are too many steps for bars."""
    shape = "One bar for every step" if len(part.durations) <= MOST_BARS else "Every step as a part of the area"
    group = math.ceil(len(part.durations) / MOST_STEPS)
    if group > 1:
        shape = f"Every {group} neighbouring steps by their mean"
    shaded = "; shaded ones are warm-up and count nowhere" if part.set_apart else ""
    cut = "; those of warm-up go on above the picture" if highest_step(part) < max(part.durations, default=0.0) else ""
    return f"{shape}, in the order in which they ran{shaded}{cut}."


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


def roofline(rows: Sequence[LayerRow], lines: Sequence[tuple[str, Value]]) -> Chart | None:
    """Leaves as points under the ceilings, both axes logarithmic; None where no leaf has FLOPs, bytes and time.

    `lines` are the ceilings as (name, value): FLOP/s are flat roofs, B/s are slopes. Points are sized by time.
    """
    points = roofline_rows(rows)[:MOST_POINTS]
    if not points:
        return None
    longest = max(row.cost.time.value or 0.0 for row in points) or 1.0
    intensity = [row.cost.intensity.value or 0.0 for row in points]
    marks: list[Points] = ceiling_lines(lines, min(intensity), max(intensity))
    for bound, color in {**STACK_COLORS, **BOUND_COLORS}.items():
        chosen = [row for row in points if row.cost.bound == bound]
        if chosen:
            name = f"{bound}-bound" if bound in BOUND_COLORS else f"mostly {bound}"
            marks.append(layer_marks(name if bound else "no clear bound", color, SYMBOLS[bound], chosen, longest))
    return roofline_chart(marks, "intensity, FLOP per byte (nominal)")


def layer_marks(
    name: str, color: str, symbol: str, rows: Sequence[LayerRow], longest: float, before: str = ""
) -> Points:
    """Layers where their intensity and rate are, as large as their time; `before` begins what each tells."""
    points = tuple((row.cost.intensity.value or 0.0, row.cost.executed_rate.value or 0.0) for row in rows)
    hints = tuple(
        f"{before}{layer_words(row)}\nintensity {quantities.number(x)} FLOP/B, derived"
        for row, (x, _) in zip(rows, points, strict=True)
    )
    sizes = tuple(mark_size(row.cost.time.value or 0.0, longest) for row in rows)
    return Points(name, color, points, symbols=(symbol,), sizes=sizes, hints=hints, opacity=0.8)


def mark_size(time: float, longest: float) -> float:
    """px: the area is the time; 5 px keeps the smallest visible."""
    return 5 + 25 * math.sqrt(time / longest)


def roofline_chart(marks: Sequence[Points], across: str, height: int = 340) -> Chart:
    """These points and roofs, both axes logarithmic; FLOP/s upwards."""
    points = [point for mark in marks for point in mark.points if point is not None]
    upright = log_axis("achieved", [y for _, y in points], "FLOP/s")
    return Chart(log_axis(across, [x for x, _ in points], "1"), (Plot(upright, tuple(marks)),), height, legend=True)


def roofline_rows(rows: Sequence[LayerRow]) -> list[LayerRow]:
    """The leaves that have a place under a roofline, most time first."""
    points = [row for row in rows if row.leaf and _positive(row.cost.flops, row.cost.bytes, row.cost.achieved)]
    return sorted(points, key=lambda row: -(row.cost.time.value or 0.0))


def phase_bars(summaries: Sequence[Summary], names: Sequence[str], cycles: bool = False) -> Chart | None:
    """Median time of every phase, or its cycles, one stacked bar per run; None where there are none to draw."""
    parts = [summary.parts[0] if summary.parts else None for summary in summaries]
    times = [phase_values(part, cycles) if part else {} for part in parts]
    phases = list(dict.fromkeys(name for known in times for name in known))
    if not phases:
        return None
    scale = quantities.common_scale(
        (sum(value.value or 0.0 for value in known.values()) for known in times), "cycle" if cycles else "ns"
    )
    stacked = []
    for phase, color in zip(phases, part_colors(phases), strict=True):
        values = [known.get(phase) for known in times]
        stacked.append(BarPart(
            phase, color,
            [value.value / scale.factor if value and value.value is not None else None for value in values],
            [f"{name}\n{phase}: {quantities.provenance(value)}" for name, value in zip(names, values, strict=True)],
        ))  # fmt: skip
    title = f"{scale.unit}s per step" if cycles else f"median time per step, {scale.unit}"
    return stacked_bars(names, stacked, Axis(title), row=34)


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


def cycle_stacks(rows: Sequence[LayerRow]) -> Chart | None:
    """What the own cycles of these layers are spent on, one stacked bar each, in their order; None without any."""
    stacked = [(row, row.own_simulated) for row in rows[:MOST_STACKS] if row.own_simulated is not None]
    if not stacked:
        return None
    scale = quantities.common_scale((simulated.cycles.value for _, simulated in stacked), "cycle")
    names = [layer_name(row) for row, _ in stacked]
    parts = []
    for part in stacked[0][1].stack:
        values = [simulated.stack[part].value or 0.0 for _, simulated in stacked]
        hints = [f"{name}\n{quantities.whole(value)} cycles in {part}, simulated"
                 for name, value in zip(names, values, strict=True)]  # fmt: skip
        parts.append(BarPart(part, STACK_COLORS[part], [value / scale.factor for value in values], hints))
    return stacked_bars(names, parts, Axis(f"cycles per step, {scale.unit}s"), row=24)


def layer_words(row: LayerRow) -> str:
    """Everything about a layer, one line each, for the hover box."""
    cost = row.cost
    lines = [
        layer_name(row),
        layer_hint(row),
        f"forward {quantities.provenance(row.forward)}",
        f"backward {quantities.provenance(row.backward)}",
        f"{quantities.percent(part_of_step(cost.share).value, 1)} % of the step, derived",
        *(f"{shown.label} {quantities.provenance(shown.value(cost))}" for shown in shown_in("hover")),
    ]
    if quantities.known(cost.roof):
        bound = f", {cost.bound}-bound" if cost.bound else ""
        lines.append(f"{quantities.percent(cost.roof.value)} % of roof, {cost.roof.source}{bound}")
    return "\n".join(lines)


def ceiling_lines(lines: Sequence[tuple[str, Value]], least: float, most: float) -> list[Points]:
    """The roofs over intensities from `least` to `most`: measured ones solid, others dashed, each kind by itself."""
    drawn: list[Points] = []
    kinds = [[line for line in lines if (line[1].source == "measured") == measured] for measured in (True, False)]
    for kind in kinds:
        peaks = [(name, value) for name, value in kind if value.unit == "FLOP/s" and _positive(value)]
        slopes = [(name, value) for name, value in kind if value.unit == "B/s" and _positive(value)]
        if peaks and not slopes:  # a memory without limit
            drawn += [_roof(name, value, ((least / 2, value.value or 0.0), (most * 2, value.value or 0.0)), False)
                      for name, value in peaks]  # fmt: skip
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
            drawn.append(_roof(name, value, ((height / steepest, height), (right, height)), below))
        for name, value in slopes:
            speed = value.value or 0.0
            drawn.append(_roof(name, value, ((left, left * speed), (top / speed, top)), not kinds[1] or below))
    return drawn


FLAT_SIDES: tuple[tuple[Side], tuple[Side]] = ("left above",), ("left below",)
SLOPE_SIDES: tuple[tuple[Side], tuple[Side]] = ("right above",), ("right below",)
"""Where the names of roofs stand, above and below them."""


def _roof(name: str, value: Value, ends: tuple[Place, Place], below: bool) -> Points:
    label = f"{name} {quantities.amount(value.value, value.unit)}"
    (left, low), (right, high) = ends
    points: tuple[Place, ...] = ends
    # Flat roofs are labelled where they end, slopes where they begin; theoretical ones, which lie close by, half-way.
    labels: tuple[str, ...] = (label, "") if low != high else ("", label)
    if low != high and value.source != "measured":
        points = ((left, low), (math.sqrt(left * right), math.sqrt(low * high)), (right, high))
        labels = ("", label, "")
    under = below or len(points) == 3
    return Points(
        "", "", points, "solid" if value.source == "measured" else "dash", labels=labels,
        hints=(f"{name}: {quantities.provenance(value)}",) * len(points),
        sides=(SLOPE_SIDES if low != high else FLAT_SIDES)[under],
    )  # fmt: skip


def means(values: Sequence[float], group: int) -> list[float]:
    """Of so many neighbouring values each."""
    if group == 1:
        return list(values)
    chunks = (values[start : start + group] for start in range(0, len(values), group))
    return [sum(chunk) / len(chunk) for chunk in chunks]


def _positive(*values: Value) -> bool:
    return all(quantities.known(value) and (value.value or 0.0) > 0 for value in values)
