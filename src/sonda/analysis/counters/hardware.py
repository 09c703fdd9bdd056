"""Counters of one part: what was counted in every step, phase and layer, and whether rotated groups agree.

Groups of events take turns, one a step, so most quantities are known in some steps only. A step's value is known where
everything that belongs to it was counted all the time; what counted a part of the time only was scaled, and is called
estimated wherever it is used; what was neither is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from sonda.analysis import reasons
from sonda.analysis.counters.findings import (
    GroupsInTurn,
    NotStationary,
    RefusedCounters,
    ScaledCounters,
    UnjudgedStationarity,
)
from sonda.analysis.counters.summary import Counted, CounterSummary
from sonda.analysis.findings import Finding
from sonda.analysis.statistics import ENOUGH_STEPS, median
from sonda.analysis.steps.layers import LayerSpans, layer_spans
from sonda.analysis.steps.parts import Part
from sonda.analysis.summary import Value
from sonda.record.conventions.expression import divide
from sonda.record.quantities import INPUT_CALLS, INPUT_PRODUCTS, LEVELS, Metric
from sonda.record.spans import Spans

CYCLES, INSTRUCTIONS = "cycles", "instructions"
TIMES = ("counter_enabled", "counter_running")
SYSTEM = frozenset(
    {"task_clock", "page_faults", "context_switches", "cpu_migrations", "run_queue_wait", "cpu_time", "resident_memory"}
)
"""What the operating system counts: in every step, and only in phases that are worth it."""
SMALL_CORES = "cycles_small_cores"
"""Counted beside the others on a hybrid processor, whose events run on one kind of core only."""
NOT_COUNTERS = frozenset(
    {
        "shape", "peak_memory", "activations", "flops", "executed_flops", "bytes", "samples", "tokens", "operations",
        "device_time", "device_start", "communication", "collections", "collection_time", "energy", "energy_low",
        "energy_high",
        *INPUT_PRODUCTS.values(), *INPUT_CALLS,
    }
)  # fmt: skip
"""Quantities with a place of their own. That of energy is its table of windows: spans shorter than the time between
readings have none, so that a median over the others would be that of the longest steps."""
COVERED = 0.8
"""What the operating system counts stands for a step or phase where its readings cover this part of it."""
DISAGREE = 0.05
"""Groups whose medians differ by 5 %, beyond their intervals, saw two different programs."""
FEWEST = 4
"""Steps of each group from which on disjoint ranges are rarer than one in thirty by chance."""


@dataclass(frozen=True)
class PlaceReadings:
    """What was counted in one place, step by step; NaN where it is not known."""

    values: dict[str, np.ndarray]
    estimated: dict[str, np.ndarray]
    """Whether a step's value was scaled."""

    def chosen(self, steps: np.ndarray) -> PlaceReadings:
        return PlaceReadings(
            {name: values[steps] for name, values in self.values.items()},
            {name: marks[steps] for name, marks in self.estimated.items()},
        )


@dataclass(frozen=True)
class PartReadings:
    """The readings of a part; a step per entry of `Part.rows`."""

    step: PlaceReadings
    phases: dict[str, PlaceReadings]
    layers: dict[str, PlaceReadings]
    """By path: forward and backward together, without the layers inside."""
    quantities: tuple[str, ...]
    refused: float = 1.0
    """The least part of the time that unscaled counters really counted; below 1 these were refused."""
    hybrid: bool = False
    hardware: tuple[str, ...] = field(default=())


def read_places(part: Part) -> PartReadings:
    """Everything that was counted in a part."""
    spans = part.index.spans
    table, marks, refused, hybrid = _columns(spans)
    number = np.full(len(spans), -1, dtype=np.int64)
    number[part.rows] = np.arange(len(part.rows))
    step = np.where(part.index.step_of >= 0, number[np.maximum(part.index.step_of, 0)], -1)
    count = len(part.rows)
    rows = np.flatnonzero(spans.where(kind="phase") & (step >= 0))
    names = spans.words("name")
    phases = {}
    for code in np.unique(names.codes[rows]):
        chosen = rows[names.codes[rows] == code]
        phases[names.words[code]] = _sums_by_step(spans, table, marks, chosen, step[chosen], count)
    hardware = tuple(
        name for name in table if name not in SYSTEM and (~np.isnan(table[name][rows])).any() and len(rows)
    )
    return PartReadings(
        step=_whole(part, table, marks, rows, step[rows]),
        phases={name: phases[name] for name in part.phases if name in phases},
        layers=_layers(part, {name: table[name] for name in hardware}, marks, step, count) if hardware else {},
        quantities=tuple(table),
        refused=refused,
        hybrid=hybrid,
        hardware=hardware,
    )


def _columns(spans: Spans) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], float, bool]:
    """Values of every span by quantity, whether they were scaled, the least time counting, and whether it is hybrid."""
    metrics = [Metric.parse(column) for column in spans.metrics]
    names = dict.fromkeys(
        metric.quantity for metric in metrics
        if metric.source in ("counted", "estimated") and metric.quantity not in NOT_COUNTERS | set(TIMES)
    )  # fmt: skip
    names |= dict.fromkeys(metric.quantity for metric in metrics if metric.quantity == "resident_memory")
    hybrid = SMALL_CORES in names
    enabled, running = (spans.metric(name, "counted") for name in TIMES)
    partly = (running < enabled) & (enabled > 0)
    table, marks = {}, {}
    refused = 1.0
    for name in names:
        if name in LEVELS:
            table[name] = spans.metric(name, "measured")
            marks[name] = np.zeros(len(spans), dtype=bool)
            continue
        counted, scaled = spans.metric(name, "counted"), spans.metric(name, "estimated")
        if name not in SYSTEM and not hybrid:
            unscaled = partly & ~np.isnan(counted)
            if unscaled.any():
                refused = min(refused, float((running[unscaled] / enabled[unscaled]).min()))
            counted = np.where(partly, np.nan, counted)
        table[name] = np.where(np.isnan(counted), scaled, counted)
        marks[name] = np.isnan(counted) & ~np.isnan(scaled)
    return table, marks, refused, hybrid


def _sums_by_step(
    spans: Spans, table: Mapping[str, np.ndarray], marks: Mapping[str, np.ndarray], rows: np.ndarray, step: np.ndarray,
    count: int,
) -> PlaceReadings:  # fmt: skip
    """Sums over the spans of every step. A part that is not known makes the sum unknown, but for small parts of what
    the operating system counts."""
    duration = spans.number("duration")[rows].astype(np.float64)
    lasted = np.bincount(step, weights=duration, minlength=count)
    values, estimated = {}, {}
    for name, column in table.items():
        here = column[rows]
        known = ~np.isnan(here)
        covered = np.bincount(step[known], weights=duration[known], minlength=count)
        seen = np.bincount(step[known], minlength=count) > 0
        if name in SYSTEM:
            whole = seen & (covered >= COVERED * lasted)
        else:
            whole = seen & (np.bincount(step[~known], minlength=count) == 0)
        sums = np.zeros(count)
        if name in LEVELS:
            np.maximum.at(sums, step[known], here[known])
        else:
            np.add.at(sums, step[known], here[known])
        values[name] = np.where(whole, sums, np.nan)
        estimated[name] = np.bincount(step, weights=marks[name][rows], minlength=count) > 0
    return PlaceReadings(values, estimated)


def _whole(
    part: Part, table: dict[str, np.ndarray], marks: dict[str, np.ndarray], rows: np.ndarray, step: np.ndarray
) -> PlaceReadings:
    """What was counted from a step's begin to its end; where that was not read, in its phases, if these cover it."""
    spans = part.index.spans
    count = len(part.rows)
    together = _sums_by_step(spans, table, marks, rows, step, count)
    duration = spans.number("duration")[rows].astype(np.float64)
    values, estimated = {}, {}
    for name, column in table.items():
        known = ~np.isnan(column[rows])
        covered = np.bincount(step[known], weights=duration[known], minlength=count)
        inside = np.where(covered >= COVERED * part.host, together.values[name], np.nan)
        own = column[part.rows]
        values[name] = np.where(np.isnan(own), inside, own)
        estimated[name] = np.where(np.isnan(own), together.estimated[name], marks[name][part.rows])
    return PlaceReadings(values, estimated)


def _layers(
    part: Part, table: dict[str, np.ndarray], marks: dict[str, np.ndarray], step: np.ndarray, count: int
) -> dict[str, PlaceReadings]:
    """Own counts of every layer. The sums of layers hold NaN where any part of them is not known."""
    spans = part.index.spans
    layers = layer_spans(spans, step, count, part.index.phase_of)
    if not len(layers.rows):
        return {}
    outer = spans.number("parent")[layers.rows]
    called = _by_path(layers, np.ones(len(layers.rows))) > 0
    readings: dict[str, PlaceReadings] = {path: PlaceReadings({}, {}) for path in layers.paths}
    for name, column in table.items():
        values = column[layers.rows]
        within = np.bincount(outer[outer >= 0], weights=values[outer >= 0], minlength=len(spans))[layers.rows]
        own = np.where(called, _by_path(layers, values - within), np.nan)
        scaled = _by_path(layers, marks[name][layers.rows].astype(np.float64)) > 0
        for index, path in enumerate(layers.paths):
            readings[path].values[name] = own[index]
            readings[path].estimated[name] = scaled[index]
    return readings


def _by_path(layers: LayerSpans, values: np.ndarray) -> np.ndarray:
    """Sums of values by path and step."""
    cell = layers.module * layers.steps + layers.step
    size = len(layers.paths) * layers.steps
    return np.bincount(cell, weights=values, minlength=size).reshape(len(layers.paths), layers.steps)


def groups_of(places: PartReadings) -> tuple[np.ndarray, tuple[tuple[str, ...], ...]]:
    """Which group every step counted (-1 for none), and the events of each."""
    names = [
        name for name in places.hardware if name not in (CYCLES, INSTRUCTIONS) and not name.endswith("small_cores")
    ]
    everywhere = [places.step, *places.phases.values()]
    steps = len(next(iter(places.step.values.values()), ()))
    known = {
        name: np.any([~np.isnan(reading.values[name]) for reading in everywhere], axis=0)
        for name in (*names, CYCLES)
        if name in places.hardware
    }
    numbers: dict[tuple[str, ...], int] = {}
    group = np.full(steps, -1, dtype=np.int64)
    for at in range(steps):
        events = tuple(name for name in names if known[name][at])
        if events or (CYCLES in known and known[CYCLES][at]):
            group[at] = numbers.setdefault(events, len(numbers))
    return group, tuple(numbers)


def summarise_counters(part: Part, places: PartReadings) -> CounterSummary | None:
    """Counts per step of all places; None where no hardware counter was read."""
    if not places.hardware or not part.measured.any():
        return None
    effective = part.effective
    measured = part.measured
    group, groups = groups_of(places)
    disagreements, judged = _disagreements(part.name, places, group[measured], len(groups), measured)
    findings: list[Finding] = []
    if len(groups) > 1:
        each = [int((group[measured] == number).sum()) for number in range(len(groups))]
        findings.append(GroupsInTurn(part.name, len(groups), min(each), max(each)))
        if judged is None:
            findings.append(UnjudgedStationarity(part.name, ENOUGH_STEPS * len(groups)))
    if any((readings.estimated[name] & ~np.isnan(readings.values[name]))[measured].any()
           for readings in (places.step, *places.phases.values()) for name in places.hardware):  # fmt: skip
        findings.append(ScaledCounters(part.name))
    if places.refused < 1:
        findings.append(RefusedCounters(part.name, places.refused))
    return CounterSummary(
        step=_counted(places.step.chosen(measured), places.hardware, effective),
        phases={
            name: _counted(readings.chosen(measured), places.hardware, effective)
            for name, readings in places.phases.items()
        },
        layers={
            path: _counted(readings.chosen(measured), places.hardware, 0) for path, readings in places.layers.items()
        },
        groups=groups,
        stationary=judged,
        findings=tuple(findings),
        warnings=tuple(disagreements),
    )


def best(values: np.ndarray, estimated: np.ndarray) -> tuple[np.ndarray, bool]:
    """The values that were counted, or where there are none those that were scaled; and whether they were."""
    known = ~np.isnan(values)
    counted = known & ~estimated
    return (values[counted], False) if counted.any() else (values[known], bool(known.any()))


def middle(values: np.ndarray) -> float:
    """The median; for the few values of a group much quicker than numpy's."""
    ordered = sorted(values.tolist())
    half = len(ordered) // 2
    middle: float = ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
    return middle


def typical(values: np.ndarray, estimated: np.ndarray, unit: str, source: str, effective: int, reason: str) -> Value:
    """The median over steps, `estimated` where nothing was counted all the time.

    It has an interval unless `effective`, the number of independent steps, is 0: a network has hundreds of layers.
    """
    chosen, scaled = best(values, estimated)
    if not len(chosen):
        return Value(None, unit, source, reason=reason)
    if not effective:
        return Value(middle(chosen), unit, "estimated" if scaled else source)
    estimate = median(chosen, min(effective, len(chosen)))
    return Value(estimate.value, unit, "estimated" if scaled else source, estimate.low, estimate.high, few=estimate.few)


def _counted(readings: PlaceReadings, names: Iterable[str], effective: int) -> Counted:
    values, marks = readings.values, readings.estimated
    never = reasons.NOT_COUNTED_IN_STEPS
    counters = {
        name: typical(values[name], marks[name], Metric(name, "counted").unit, "counted", effective, never)
        for name in names
    }
    absent = np.full(len(next(iter(values.values()))), np.nan)
    instructions = values.get(INSTRUCTIONS, absent)

    def over(above: str, below: str, factor: float, reason: str) -> Value:
        if above not in values or below not in values:
            return Value(None, "1", "derived", reason=reason)
        ratio = factor * divide(values[above], values[below])
        return typical(ratio, marks[above] | marks[below], "1", "derived", effective, reason)

    return Counted(
        counters={name: value for name, value in counters.items() if value.value is not None},
        ipc=over(INSTRUCTIONS, CYCLES, 1.0, reasons.CYCLES_APART),
        per_thousand={
            name: over(name, INSTRUCTIONS, 1000.0, reasons.INSTRUCTIONS_APART)
            for name in names
            if name not in (CYCLES, INSTRUCTIONS) and (~np.isnan(values[name] + instructions)).any()
        },
    )


def _disagreements(
    part: str, places: PartReadings, group: np.ndarray, groups: int, measured: np.ndarray
) -> tuple[list[Finding], bool | None]:
    """Where groups saw different cycles or instructions; and whether all agree, None where steps are few."""
    if groups < 2:
        return [], True if groups else None
    disagreements: list[Finding] = []
    judged = False
    for place, readings in (("", places.step), *places.phases.items()):
        for name in (CYCLES, INSTRUCTIONS):
            if name not in readings.values:
                continue
            values, marks = readings.values[name][measured], readings.estimated[name][measured]
            sides = [best(values[group == number], marks[group == number])[0] for number in range(groups)]
            sides = [side for side in sides if len(side) >= FEWEST]
            if len(sides) < 2:
                continue
            judged = True
            apart = _disagreeing_medians(sides)
            if apart is not None:
                disagreements.append(NotStationary(part, place, name, *apart))
                break
        if disagreements:
            break
    return disagreements, None if not judged else not disagreements


def _disagreeing_medians(sides: list[np.ndarray]) -> tuple[float, float] | None:
    """The lowest and the highest median, where their intervals do not meet and they differ by 5 %."""
    estimates = sorted((median(side) for side in sides), key=lambda estimate: estimate.value)
    low, high = estimates[0], estimates[-1]
    if low.value <= 0 or low.high is None or high.low is None:
        return None
    return (low.value, high.value) if high.low > low.high and high.value > (1 + DISAGREE) * low.value else None
