"""How a part went over time: quantities step by step and per fixed interval, and where they change."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from sonda.analysis.change_points import Change, find_changes
from sonda.analysis.counters.findings import LevelChange, PhaseChange, SeriesChange, SeriesDrift
from sonda.analysis.counters.hardware import CYCLES, INSTRUCTIONS, SYSTEM, PartReadings
from sonda.analysis.counters.summary import Intervals, OverTime, Series, TopDown, is_share
from sonda.analysis.counters.topdown import step_shares
from sonda.analysis.findings import Finding
from sonda.analysis.steps.parts import Part
from sonda.record.conventions.expression import divide
from sonda.record.quantities import LEVELS, Metric

STEP, IPC = "step time", "IPC"
NEAR = 2
"""Steps by which changes that are one may be apart: each quantity has its own noise."""
FEW = 10
"""Events a step: where there are fewer before and after, nothing follows from their number."""
LEAST_TIME = 0.01
"""Of the step: shorter times (waiting for a processor, say) are not worth telling."""
LEAST_SHARE = 0.05
"""Of the slots: smaller changes of a category are not worth telling."""
INTERVALS = 60
"""About so many fixed intervals make a run."""
ROUND = (1, 2, 5)


def summarise_over_time(part: Part, places: PartReadings, topdown: TopDown | None) -> OverTime | None:
    """The series of a part with their changes; None without steps."""
    if not len(part.rows):
        return None
    scale = float(np.median(part.durations[part.measured])) if part.measured.any() else 0.0
    series = [_series(column, part.measured, scale) for column in _columns(part, places, topdown)]
    # Phases say why the time of a step changes; where it does not, nobody asks.
    phases = [_series(column, part.measured, scale) for column in _phases(part)] if series[0].changes else []
    return OverTime(
        series=tuple(curve for curve in series if len(curve.values)),
        findings=tuple(find_level_changes(part.name, series, phases)),
        intervals=per_interval(part, places),
    )


@dataclass(frozen=True)
class _Column:
    name: str
    unit: str
    source: str
    values: np.ndarray
    """A value per step; NaN where there is none."""
    events: bool = False
    """Counts events, one by one."""


def _columns(part: Part, places: PartReadings, topdown: TopDown | None) -> Iterator[_Column]:
    yield _Column(STEP, "ns", "measured", part.durations)
    known, marks = places.step.values, places.step.estimated
    if CYCLES in known and INSTRUCTIONS in known:
        yield _Column(IPC, "1", _source(known[CYCLES], marks[CYCLES], "derived"),
                      divide(known[INSTRUCTIONS], known[CYCLES]))  # fmt: skip
    for name in known:
        if name in SYSTEM or name in (CYCLES, INSTRUCTIONS):
            source = "measured" if name in LEVELS else _source(known[name], marks[name], "counted")
            yield _Column(name.replace("_", " "), _unit(name), source, known[name], _unit(name) == "1")
        elif "miss" in name and INSTRUCTIONS in known:
            rate = 1000 * divide(known[name], known[INSTRUCTIONS])
            yield _Column(f"{name.replace('_', ' ')} per 1,000 instructions", "1",
                          _source(known[name], marks[name], "derived"), rate)  # fmt: skip
    if topdown is not None:
        shares, scaled = step_shares(topdown.definition, topdown.definition.parsed(), places.step)
        for category in topdown.definition.categories:
            if not category.parent:
                source = _source(shares[category.name], scaled[category.name], "derived")
                yield _Column(category.words, f"of {topdown.definition.of}", source, shares[category.name])


def _unit(name: str) -> str:
    return Metric(name, "counted").unit


def _source(values: np.ndarray, marks: np.ndarray, otherwise: str) -> str:
    return "estimated" if (marks & ~np.isnan(values)).any() else otherwise


def _phases(part: Part) -> Iterator[_Column]:
    for name, values in part.phases.items():
        yield _Column(name, "ns", "measured", values)


def _series(column: _Column, measured: np.ndarray, step: float) -> Series:
    """The known values of a column; what changes in those after warm-up and is worth telling."""
    known = np.flatnonzero(np.isfinite(column.values))
    values = column.values[known]
    first = int((~measured[known]).sum())
    changes, drift = find_changes(values[first:]) if len(values) else ((), None)
    changes_worth = tuple(change for change in changes if _worth(column, change.before, change.after, step))
    if drift is not None and not _worth(column, drift.first, drift.last, step):
        drift = None
    return Series(
        column.name,
        column.unit,
        column.source,
        tuple((known + 1).tolist()),
        tuple(values.tolist()),
        changes_worth,
        drift,
        first,
    )


def _worth(column: _Column, before: float, after: float, step: float) -> bool:
    if column.unit == "ns":
        return abs(after - before) >= LEAST_TIME * step
    if is_share(column.unit):
        return abs(after - before) >= LEAST_SHARE
    return not column.events or max(before, after) >= FEW


def find_level_changes(
    of: str, series: Sequence[Series], phases: Sequence[Series] = (), starts: Sequence[float] | None = None
) -> Iterator[Finding]:
    """One finding for all that changes at the same step, and one for every drift of time or IPC.

    `starts`, of the intervals of a whole program, are ns since it began; then `of` is ''.
    """
    changes = sorted(
        (
            (curve.step_of(change), place, curve, change)
            for place, curve in enumerate(series)
            for change in curve.changes
        ),
        key=lambda item: item[:2],
    )
    while changes:
        at = changes[0][0]
        together = sorted((item for item in changes if item[0] <= at + NEAR), key=lambda item: item[1])
        changes = [item for item in changes if item[0] > at + NEAR]
        # The first in the order of the series speaks for all: time, then IPC, then what was counted.
        step, _, lead, change = together[0]
        yield LevelChange(
            of=of,
            at=step,
            time=float(starts[step - 1]) if starts is not None else None,
            lead=_series_change(lead, change),
            phase=_phase_change(phases, step, change) if lead.name == STEP else None,
            others=tuple(_series_change(curve, change) for _, _, curve, change in together[1:]),
        )
    for curve in series:
        if curve.drift is not None:
            first, last, count = curve.drift.first, curve.drift.last, len(curve.values) - curve.first
            yield SeriesDrift(of, curve.name, curve.unit, first, last, count)


def _series_change(series: Series, change: Change) -> SeriesChange:
    return SeriesChange(series.name, series.unit, change.before, change.after, change.relative)


def _phase_change(phases: Sequence[Series], step: int, whole: Change) -> PhaseChange | None:
    """The phase that changes most at this step, in the same direction."""
    moved = [
        (phase_change.after - phase_change.before, curve.name)
        for curve in phases
        for phase_change in curve.changes
        if abs(curve.step_of(phase_change) - step) <= NEAR
        and (phase_change.after > phase_change.before) == (whole.after > whole.before)
    ]
    if not moved:
        return None
    difference, name = max(moved, key=lambda item: abs(item[0]))
    return PhaseChange(name, difference, abs(difference) >= abs(whole.after - whole.before) / 2)


def per_interval(part: Part, places: PartReadings, length: float = 0.0) -> Intervals | None:
    """Rates in fixed intervals of `length` ns (0: a round length that makes about sixty), all steps of the part.

    What a step counted is spread evenly over it. An interval's rate is that of the time in it whose steps are known.
    None where the part took no time.
    """
    spans = part.index.spans
    start = spans.number("start")[part.rows].astype(np.float64)
    end = start + part.durations
    if not len(start) or end.max() <= start.min():
        return None
    origin = float(start.min())
    whole = float(end.max()) - origin
    length = length or _round(whole / INTERVALS)
    edges = origin + length * np.arange(math.ceil(whole / length) + 1)
    reached = np.array([np.clip((edge - start) / np.maximum(part.durations, 1), 0, 1) for edge in edges])
    inside = np.diff(reached, axis=0)
    rates: dict[str, tuple[float, ...]] = {"steps": tuple((inside.sum(axis=1) / length * 1e9).tolist())}
    units = {"steps": "1/s"}
    sums: dict[str, np.ndarray] = {}
    for name, values in places.step.values.items():
        if name not in SYSTEM and name not in (CYCLES, INSTRUCTIONS):
            continue
        known = ~np.isnan(values)
        spent = inside[:, known] @ part.durations[known]
        if name in LEVELS:
            # A level counts for as long as it stood.
            weighted = inside[:, known] @ (part.durations[known] * values[known])
            rates[name.replace("_", " ")] = tuple(divide(weighted, spent).tolist())
            units[name.replace("_", " ")] = _unit(name)
            continue
        sums[name] = inside[:, known] @ values[known]
        rates[name.replace("_", " ")] = tuple((divide(sums[name], spent) * 1e9).tolist())
        units[name.replace("_", " ")] = f"{_unit(name)}/s"
    if CYCLES in sums and INSTRUCTIONS in sums:
        rates[IPC] = tuple(divide(sums[INSTRUCTIONS], sums[CYCLES]).tolist())
        units[IPC] = "1"
    return Intervals(length, tuple((edges[:-1] - origin).tolist()), rates, units)


def _round(length: float) -> float:
    """The next 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(max(length, 1.0)))
    return next(digit * power for digit in (*ROUND, 10) if digit * power >= length * (1 - 1e-9))
