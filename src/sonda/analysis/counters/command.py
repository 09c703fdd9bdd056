"""A command as it was counted from outside: totals, rates per interval with their changes, and phases beside them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from sonda.analysis import reasons
from sonda.analysis.change_points import find_changes
from sonda.analysis.counters.findings import MoreChanges
from sonda.analysis.counters.hardware import CYCLES, INSTRUCTIONS
from sonda.analysis.counters.summary import Outside, Series, Stretch, is_share
from sonda.analysis.counters.time_series import FEW, IPC, LEAST_SHARE, find_level_changes
from sonda.analysis.findings import Finding
from sonda.analysis.summary import Value
from sonda.record.conventions.expression import divide
from sonda.record.quantities import Metric
from sonda.record.readings import Count
from sonda.record.run import Run
from sonda.record.samples import Sample
from sonda.record.spans import Spans, phase_order

CLOCK = "task_clock"
BUSY = "busy processors"
LEAST_BUSY = 0.1
"""Of a processor: smaller changes are not worth telling."""
WHOLE = 0.5
"""Of the interval: the last is shorter, and left out of the search for changes where it is shorter than this."""
MOST_CHANGES = 6
MOST_ROWS = 12
OTHER = "other"


def summarise_outside(run: Run) -> Outside | None:
    """What was counted of a command from outside; None where that was not done."""
    stored = run.info.target.outside
    if stored is None:
        return None
    spans = run.spans
    rows = np.flatnonzero(spans.where(kind="run"))
    duration = float(spans.number("duration")[rows[0]]) if len(rows) else 0.0
    totals = {name: _total(name, count) for name, count in stored.counts.items()}
    for name, reason in stored.missing.items():
        totals[name] = Value(None, Metric(name, "counted").unit, "counted", reason=reason)
    starts, ends, counts = _intervals(run.samples, {*stored.counts}, stored.interval)
    phases = _phases(spans, starts, ends)
    series = [*_series(counts, starts, ends, stored.interval), *_phase_series(phases)]
    return Outside(
        duration=Value(duration, "ns", "measured"),
        busy=_over(totals, CLOCK, Value(duration, "ns", "measured")),
        totals=totals,
        ipc=_over(totals, INSTRUCTIONS, totals.get(CYCLES)),
        interval=stored.interval if len(starts) else 0.0,
        starts=tuple(starts.tolist()),
        ends=tuple(ends.tolist()),
        series=tuple(curve for curve in series if not is_share(curve.unit)),
        phases=phases,
        stretches=_stretches(counts, starts, ends, phases),
        findings=_findings(series, starts),
    )


def _total(name: str, count: Count) -> Value:
    source = "estimated" if count.scaled else "counted"
    return Value(count.value, Metric(name, source).unit, source)


def _over(totals: Mapping[str, Value], name: str, below: Value | None) -> Value:
    above = totals.get(name)
    if above is None or above.value is None or below is None or not below.value:
        reason = (above.reason if above else "") or reasons.EVENT_NOT_COUNTED.format(name)
        return Value(None, "1", "derived", reason=reason)
    source = "estimated" if "estimated" in (above.source, below.source) else "derived"
    return Value(above.value / below.value, "1", source)


class _Amounts(NamedTuple):
    """A quantity per interval, NaN where it is not known; whether any of it was scaled."""

    values: np.ndarray
    scaled: bool


def _intervals(
    samples: list[Sample], names: set[str], interval: float
) -> tuple[np.ndarray, np.ndarray, dict[str, _Amounts]]:
    """Begin and end of every interval, ns, and what was counted in it, by quantity."""
    known = [sample for sample in samples if sample.sensor in names and interval]
    ends = np.unique(np.array([sample.time for sample in known], dtype=np.float64))
    starts = np.concatenate(([0.0], ends[:-1]))[: len(ends)]
    counts = {}
    for name in dict.fromkeys(sample.sensor for sample in known):
        chosen = [sample for sample in known if sample.sensor == name]
        values = np.full(len(ends), np.nan)
        values[np.searchsorted(ends, [sample.time for sample in chosen])] = [one.value for one in chosen]
        counts[name] = _Amounts(values, any(sample.source == "estimated" for sample in chosen))
    return starts, ends, counts


def _rates(counts: Mapping[str, _Amounts], lasted: np.ndarray) -> Iterator[tuple[str, str, _Amounts]]:
    """Name, unit and values of everything that is shown of intervals that `lasted` so many ns."""
    if CLOCK in counts:
        yield BUSY, "1", _Amounts(divide(counts[CLOCK].values, lasted), counts[CLOCK].scaled)
    if CYCLES in counts and INSTRUCTIONS in counts:
        above, below = counts[INSTRUCTIONS], counts[CYCLES]
        yield IPC, "1", _Amounts(divide(above.values, below.values), above.scaled or below.scaled)
    for name, amounts in counts.items():
        if name != CLOCK:
            rate = _Amounts(1e9 * divide(amounts.values, lasted), amounts.scaled)
            yield f"{name.replace('_', ' ')} per second", f"{Metric(name, 'counted').unit}/s", rate


def _series(counts: Mapping[str, _Amounts], starts: np.ndarray, ends: np.ndarray, interval: float) -> Iterator[Series]:
    """Rates, and where they change. Few events an interval say nothing, however much their number changes."""
    lasted = ends - starts
    whole = len(ends) - (1 if len(ends) and lasted[-1] < WHOLE * interval else 0)
    for name, unit, rate in _rates(counts, lasted):
        least, high = (LEAST_BUSY, 0.0) if name == BUSY else (0.0, 0.0 if name == IPC else FEW / interval * 1e9)
        yield _changing(name, unit, rate, whole, least, high)


def _phase_series(phases: Mapping[str, tuple[float, ...]]) -> Iterator[Series]:
    for name, shares in phases.items():
        if name != OTHER:
            amounts = _Amounts(np.array(shares), False)
            yield _changing(f"time in {name}", "of time", amounts, len(shares), LEAST_SHARE, 0.0)


def _stretches(
    counts: Mapping[str, _Amounts], starts: np.ndarray, ends: np.ndarray, phases: Mapping[str, tuple[float, ...]]
) -> tuple[Stretch, ...]:
    if not len(starts):
        return ()
    first = np.arange(0, len(starts), math.ceil(len(starts) / MOST_ROWS))
    begin, end = starts[first], np.append(starts[first[1:]], ends[-1])
    sums = {name: _Amounts(np.add.reduceat(amounts.values, first), amounts.scaled) for name, amounts in counts.items()}
    rates = list(_rates(sums, end - begin))
    shares = {
        name: np.add.reduceat(np.array(shares) * (ends - starts), first) / (end - begin)
        for name, shares in phases.items()
    }
    stretches = []
    for row in range(len(first)):
        phase = max(shares, key=lambda name: float(shares[name][row])) if shares else ""
        values = {name: _value(float(rate.values[row]), unit, rate.scaled) for name, unit, rate in rates}
        stretches.append(
            Stretch(float(begin[row]), float(end[row]), values, phase, float(shares[phase][row]) if phase else 0.0)
        )
    return tuple(stretches)


def _value(value: float, unit: str, scaled: bool) -> Value:
    if not math.isfinite(value):
        return Value(None, unit, "derived", reason=reasons.NOT_COUNTED_MEANWHILE)
    return Value(value, unit, "estimated" if scaled else "derived")


def _changing(name: str, unit: str, amounts: _Amounts, whole: int, least: float, high: float) -> Series:
    """The known values with their changes among the first `whole`: by `least` or more, to or from `high` or more."""

    def worth(before: float, after: float) -> bool:
        return abs(after - before) >= least and max(before, after) >= high

    known = np.flatnonzero(np.isfinite(amounts.values))
    changes, drift = find_changes(amounts.values[known[known < whole]])
    return Series(
        name=name,
        unit=unit,
        source="estimated" if amounts.scaled else "derived",
        steps=tuple((known + 1).tolist()),
        values=tuple(amounts.values[known].tolist()),
        changes=tuple(change for change in changes if worth(change.before, change.after)),
        drift=drift if drift is not None and worth(drift.first, drift.last) else None,
    )


def _findings(series: list[Series], starts: np.ndarray) -> tuple[Finding, ...]:
    findings = list(find_level_changes("", series, starts=starts.tolist()))
    left = len(findings) - MOST_CHANGES
    return tuple(findings) if left <= 1 else (*findings[:MOST_CHANGES], MoreChanges(left))


def _phases(spans: Spans, starts: np.ndarray, ends: np.ndarray) -> dict[str, tuple[float, ...]]:
    """The part of every interval that each phase of the first process took, and `other`."""
    rows = np.flatnonzero(spans.where(kind="phase") & ~spans.words("pass").equal("modelled"))
    if not len(rows) or not len(starts):
        return {}
    rank = spans.number("rank")[rows]
    rows = rows[rank == rank.min()]
    begin = spans.number("start")[rows].astype(np.float64)
    end = begin + spans.number("duration")[rows]
    names = spans.words("name")
    named = np.array([names.words[code] for code in names.codes[rows]])
    phases = {}
    for name in sorted(set(named.tolist()), key=phase_order):
        mine = named == name
        spent = _elapsed(begin[mine], ends) - _elapsed(begin[mine], starts)
        spent -= _elapsed(end[mine], ends) - _elapsed(end[mine], starts)
        phases[name] = np.clip(spent / (ends - starts), 0, 1)
    phases[OTHER] = np.clip(1 - np.sum(list(phases.values()), axis=0), 0, 1)
    return {name: tuple(shares.tolist()) for name, shares in phases.items()}


def _elapsed(moments: np.ndarray, times: np.ndarray) -> np.ndarray:
    """The sum over all `moments` of the time since then, at each of `times`."""
    ordered = np.sort(moments)
    sums = np.concatenate(([0.0], np.cumsum(ordered)))
    before = np.searchsorted(ordered, times)
    return np.asarray(before * times - sums[before])
