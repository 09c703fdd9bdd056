"""Tables behind pictures that no other table shows: step by step, point by point, reading by reading."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from sonda.analysis.counters.summary import Series, TopDown, is_share
from sonda.analysis.energy.summary import EnergySummary
from sonda.analysis.summary import LayerRow, PartSummary, Summary, Value
from sonda.report import quantities
from sonda.report.figures import phase_values
from sonda.report.table import Cell, Column, Table, build, numbers, percents, quantity, tone_of, words
from sonda.report.views.steps.tables import layer_name


def steps_table(part: PartSummary) -> Table:
    """Every step: its time, that of its phases, and whether it was set apart as warm-up."""
    unit, steps = _times(part.durations, "measured")
    columns: list[tuple[Column, Sequence[Cell]]] = [
        (Column("step"), _count(len(part.durations))),
        (Column(f"step, {unit}"), steps),
    ]
    for name, values in part.phase_steps.items():
        unit, cells = _times(values, "measured")
        columns.append((Column(f"{name}, {unit}"), cells))
    apart = part.set_apart
    roles = ["warm-up" if at in apart else "timed" for at in range(len(part.durations))]
    columns.append((Column("counts as", right=False), words(roles)))
    return build(columns, "phases over steps")


def series_table(series: Sequence[Series], noun: str, place: Callable[[int], Cell] | None = None) -> Table:
    """Some quantities step by step, or interval by interval: a column each, empty where a step did not read it."""
    steps = sorted({step for metric in series for step in metric.steps})
    at = {step: index for index, step in enumerate(steps)}
    first = [place(step) if place else Cell(f"{step:,}", float(step)) for step in steps]
    columns: list[tuple[Column, Sequence[Cell]]] = [(Column(noun), first)]
    for metric in series:
        share = is_share(metric.unit)
        column: list[float | None] = [None] * len(steps)
        for step, value in zip(metric.steps, metric.values, strict=True):
            column[at[step]] = value
        values = [Value(value, "1" if share else metric.unit, metric.source) for value in column]
        unit, cells = ("%" + f" {metric.unit}", percents(values, sign=False)) if share else numbers(values)
        columns.append((Column(f"{metric.name}, {unit}" if unit else metric.name), cells))
    return build(columns, "over time")


def phases_table(summaries: Sequence[Summary], names: Sequence[str], cycles: bool = False) -> Table:
    """The phases that bars of several runs show: a row for each, a column for each run."""
    shares = [phase_values(summary.parts[0], cycles) if summary.parts else {} for summary in summaries]
    phases = list(dict.fromkeys(name for known in shares for name in known))
    absent = Value(None, "cycle" if cycles else "ns", "measured", reason="this run has no such phase")
    columns = [(Column("phase", right=False), words(phases))]
    for name, known in zip(names, shares, strict=True):
        unit, cells = numbers([known.get(phase, absent) for phase in phases])
        columns.append((Column(f"{name}, {unit}"), cells))
    return build(columns, "phases of all runs")


def roofline_table(rows: Sequence[LayerRow], targets: Sequence[str] = ()) -> Table:
    """The layers that a roofline shows: how much they compute per byte, how fast, how near to the roof.

    `targets` names the target of each row, where there are several.
    """
    intensity = [row.cost.intensity for row in rows]
    rate, achieved = numbers([row.cost.executed_rate for row in rows])
    speed, bandwidth = numbers([row.cost.bandwidth for row in rows])
    unit, times = numbers([row.cost.time for row in rows])
    return build(
        [
            (Column("layer", right=False, path=True), [Cell(layer_name(row), row.path, tone="name") for row in rows]),
            *([(Column("target", right=False), words(targets))] if targets else []),
            (Column("type", right=False), words([row.name for row in rows])),
            (Column("intensity, FLOP/B", hint="floating-point operations for every byte moved"), _exact(intensity)),
            (Column(f"achieved, {rate}"), achieved),
            (Column(f"bandwidth, {speed}"), bandwidth),
            (Column(f"time, {unit}"), times),
            (Column("% of roof", hint="time that the measured ceilings allow, divided by the time taken"),
             percents([row.cost.roof for row in rows])),
            (Column("limit", right=False), words([row.cost.bound for row in rows], tone_of)),
        ],
        "roofline",
    )  # fmt: skip


def stack_table(rows: Sequence[LayerRow]) -> Table:
    """What the own cycles of layers on a simulated accelerator are spent on."""
    simulated = [(row, row.own_simulated) for row in rows if row.own_simulated is not None]
    columns: list[tuple[Column, Sequence[Cell]]] = [
        (
            Column("layer", right=False, path=True),
            [Cell(layer_name(row), row.path, tone="name") for row, _ in simulated],
        ),
        (Column("cycles"), _whole([layer.cycles for _, layer in simulated])),
    ]
    for name in simulated[0][1].stack if simulated else ():
        columns.append((Column(name), _whole([layer.stack[name] for _, layer in simulated])))
    return build(columns, "cycles of layers")


def stretches_table(topdown: TopDown) -> Table:
    """Level 1 of Top-Down for every stretch of steps."""
    names = [f"{first}" if first == last else f"{first} to {last}" for first, last in topdown.stretches]
    cells = [Cell(name, float(first)) for name, (first, _) in zip(names, topdown.stretches, strict=True)]
    columns: list[tuple[Column, Sequence[Cell]]] = [(Column("steps", right=False), cells)]
    reason = "not counted in these steps"
    for category in topdown.definition.categories:
        if category.name in topdown.over_steps:
            values = [
                Value(value if math.isfinite(value) else None, "1", "derived", reason=reason)
                for value in topdown.over_steps[category.name]
            ]
            columns.append((Column(f"{category.words}, %"), percents(values, sign=False)))
    return build(columns, "Top-Down over steps")


def power_table(energy: EnergySummary) -> Table:
    """Every reading of power: when, which device, how much."""
    rows = [(name, time, watts) for name, points in energy.power.items() for time, watts in points]
    seconds = [Value(time, "s", "measured") for _, time, _ in rows]
    watts = [Value(value, "W", "estimated" if name in energy.estimated else "derived") for name, _, value in rows]
    return build(
        [
            (Column("device", right=False), words([name for name, _, _ in rows])),
            (Column("until, s", hint="since the program began; before 0 it was idle"), numbers(seconds)[1]),
            (Column("mean power, W", hint="since the reading before"), numbers(watts)[1]),
        ],
        "power over time",
    )


def _times(values: Sequence[float], source: str) -> tuple[str, list[Cell]]:
    return numbers([Value(value, "ns", source) for value in values])


def _count(count: int) -> list[Cell]:
    return [Cell(f"{at:,}", float(at)) for at in range(1, count + 1)]


def _exact(values: Sequence[Value]) -> list[Cell]:
    """Numbers that differ by decades, each with its own digits."""
    return [quantity(value, quantities.number(value.value or 0.0)) for value in values]


def _whole(values: Sequence[Value]) -> list[Cell]:
    return [quantity(value, quantities.whole(value.value or 0.0)) for value in values]
