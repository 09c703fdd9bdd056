"""Energy of a run by device and region, what it covers, above idle, by phase, and the energy-delay product."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sonda.analysis import reasons, wording
from sonda.analysis.energy.coverage import NEVER, EnergyCoverage, coverage, in_order
from sonda.analysis.energy.findings import (
    IntegralOff,
    LostCounters,
    NoEnergy,
    ReadingRate,
    SourceEnergy,
    SpentEnergy,
    ThrottledShare,
    ThrottledTimes,
    UnreadCounter,
    WholeMachine,
)
from sonda.analysis.energy.meters import (
    DERIVED,
    Meter,
    add_values,
    common_source,
    counter_series,
    meters_of,
    scaled,
    series_of,
)
from sonda.analysis.energy.nodes import energy_of_nodes, once
from sonda.analysis.energy.summary import Beneath, Cost, Device, EnergySummary, Window
from sonda.analysis.energy.windows import company_windows, mean_window, windows
from sonda.analysis.findings import Finding, Remark
from sonda.analysis.summary import Value
from sonda.record.conventions.counter_series import CounterSeries
from sonda.record.conventions.throttle_reasons import throttling
from sonda.record.nodes import by_machine, machines_of
from sonda.record.readings import EnergyCounter, StoredEnergy
from sonda.record.run import Run
from sonda.record.samples import Sample
from sonda.record.spans import Spans
from sonda.record.target import CorunTarget

# ---- Shares of phases in equal stretches of time while power was read -----------------------------------------------

STRETCHES = 240
"""Of the whole time: as many as a figure can show."""


def phases_beneath(spans: Spans, regions: Sequence[tuple[str, int, int]], duration: float) -> Beneath | None:
    """Phases of the first rank, or marked regions where there are no phases; None where there is neither.

    Times are ns since the program began.
    """
    rank = spans.number("rank")
    rows = np.flatnonzero((rank == (rank.min() if len(rank) else 0)) & spans.where(kind="phase"))
    if len(rows):
        names = spans.words("name").decoded()[rows]
        begin = spans.number("start")[rows].astype(np.float64)
        end = begin + spans.number("duration")[rows]
    else:
        names = np.array([name for name, _, _ in regions])
        begin = np.array([start for _, start, _ in regions], dtype=np.float64)
        end = np.array([stop for _, _, stop in regions], dtype=np.float64)
    if not len(names) or duration <= 0:
        return None
    edges = np.linspace(0.0, duration, STRETCHES + 1)
    shares = {
        str(name): tuple(np.clip(_inside(begin[names == name], end[names == name], edges), 0, 1).tolist())
        for name in dict.fromkeys(names.tolist())
    }
    return Beneath(tuple((edges[:-1] / 1e9).tolist()), duration / STRETCHES / 1e9, shares)


def _inside(begin: np.ndarray, end: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Share of every stretch that intervals cover: differences of what they cover up to each edge."""
    order = np.argsort(begin)
    begin, end = begin[order], end[order]
    covered = np.zeros(len(edges))
    for at, edge in enumerate(edges):
        started = int(np.searchsorted(begin, edge))
        covered[at] = np.minimum(end[:started], edge).sum() - begin[:started].sum()
    return np.diff(covered) / np.diff(edges)


# ----------------------------------------------------------------------------------------------------------------------

DISAGREE = 0.05
"""EnergyCounter and integral of power that differ by more are worth a warning."""


def summarise_energy(run: Run, title: str = "") -> EnergySummary | None:
    """What the run cost, on all of its nodes; None where no energy was read."""
    parts, lost = by_machine(run)
    nodes = [*((name, _of_machine(part, title)) for name, part in parts), *((name, None) for name in lost)]
    known = [(name, part) for name, part in nodes if part is not None]
    machines = machines_of(run.info.target)
    energy = known[0][1] if known else None
    if known and len(nodes) > 1:
        energy = energy_of_nodes(known, [name for name, part in nodes if part is None], machines)
    return replace(energy, notes=(*once(machines), *energy.notes)) if energy else None


def _of_machine(run: Run, title: str) -> EnergySummary | None:
    stored = run.info.target.metered
    if stored is None:
        return None
    spans = run.spans
    rows = np.flatnonzero(spans.where(kind="run"))
    duration = float(spans.number("duration")[rows[0]]) if len(rows) else 0.0
    meters = meters_of(stored, run.samples)
    extent = coverage(stored, meters)
    devices = tuple(_devices(stored, run.samples, meters, extent, duration))
    corun = run.info.target.corun if isinstance(run.info.target, CorunTarget) else None
    alone = run.info.kind == "energy"  # of any other run, its own summary says these
    return EnergySummary(
        run=run.id,
        title=title or (run.info.workload.name or "run"),
        time=Value(duration, "ns", "measured"),
        devices=devices,
        all=_sums(meters, stored, extent.without(), duration),
        used=_sums([meter for meter in meters if meter.used], stored, extent.without(stored.used), duration),
        covers=extent.covers,
        not_covered=(*extent.lacking, NEVER),
        finding=_finding(meters, duration, extent, stored, not alone),
        regions=tuple(_regions(stored, meters)),
        windows=tuple(company_windows(spans, corun, meters) if corun else windows(spans, meters)),
        power={meter.name: _power(meter) for meter in meters},
        estimated=frozenset(meter.name for meter in meters if meter.source == "estimated"),
        notes=(*(map(Remark, run.info.notes) if alone else ()), *_notes(stored, duration)),
        warnings=(*(map(Remark, run.info.disturbed) if alone else ()), *_warnings(devices, extent)),
        modelled=_modelled(meters),
        parts=extent.parts,
        beneath=phases_beneath(spans, stored.regions, duration) if not corun else None,
    )


def _devices(
    stored: StoredEnergy, samples: Sequence[Sample], meters: Sequence[Meter], extent: EnergyCoverage, duration: float
) -> list[Device]:
    devices = []
    names = dict.fromkeys((counter.device, counter.source) for counter in stored.counters)
    names |= dict.fromkeys((sample.device, "measured") for sample in samples if sample.unit == "W")
    for device, source in names:
        meter = next((meter for meter in meters if (meter.device, meter.source) == (device, source)), None)
        if meter is None and source == "measured":
            meter = next((meter for meter in meters if (meter.device, meter.source) == (device, DERIVED)), None)
        cost = _cost([meter], stored, extent.without([device]), duration) if meter else _no_cost(stored, device, source)
        integral = _integral(samples, device, duration) if source == "measured" else None
        disagreement = None
        if integral is not None and integral.value and cost.energy.value and cost.energy.source == "measured":
            disagreement = Value(integral.value / cost.energy.value - 1, "1", "derived")
        parts = {
            counter.sensor: _counter_energy(counter, samples, duration)
            for counter in stored.counters if (counter.device, counter.source) == (device, source)
        }  # fmt: skip
        throttled, states = _states(samples, device, duration)
        model = stored.devices.get(device, "")
        used = device in stored.used or not stored.used
        devices.append(Device(device, model, used, cost, parts, integral, disagreement, throttled, states))
    return devices


def _counter_energy(counter: EnergyCounter, samples: Sequence[Sample], duration: float) -> Value:
    if counter.state != "ok":
        return Value(None, "J", counter.source, reason=f"{counter.state}: {counter.reason}")
    series = counter_series(samples, counter)
    return Meter(counter.device, counter.source, ((counter, series),)).energy(0.0, duration)


def _cost(meters: Sequence[Meter], stored: StoredEnergy, lost: Sequence[str], duration: float) -> Cost:
    """Of these devices together; `lost` are counters of theirs that could not be believed."""
    seconds = duration / 1e9
    source = common_source(meters)
    energy = add_values([meter.energy(0.0, duration) for meter in meters], source)
    instead = {meter.device for meter in meters if meter.source == DERIVED}
    lacking = [name for name in lost if name not in instead]
    if lacking and source != "estimated" and energy.value is not None:
        energy = replace(energy, reason=reasons.WITHOUT.format(wording.join(lacking)))
    idle = Value(None, "W", "derived", reason=reasons.IDLE_NOT_MEASURED)
    if len(stored.idle) == 2 and stored.idle[1] > stored.idle[0]:
        spent = add_values([meter.energy(*stored.idle) for meter in meters], source)
        idle = scaled(spent, 1e9 / (stored.idle[1] - stored.idle[0]), "W")
    above = Value(None, "J", "derived", reason=idle.reason or energy.reason)
    if idle.value is not None and energy.value is not None:
        above = Value(energy.value - idle.value * seconds, "J", idle.source)
    power = scaled(energy, 1 / seconds, "W") if seconds else Value(None, "W", "derived", reason=reasons.NO_TIME_PASSED)
    return Cost(energy, power, idle, above, scaled(energy, seconds, "J·s"))


def _no_cost(stored: StoredEnergy, device: str, source: str) -> Cost:
    mine = [
        counter
        for counter in stored.counters
        if counter.device == device and counter.source == source and counter.reason
    ]
    reason = "; ".join(f"{counter.sensor} {counter.state}: {counter.reason}" for counter in mine)
    if not reason:
        reason = "; ".join(f"{lack.what}: {lack.reason}" for lack in stored.missing) or reasons.NO_COUNTER
    return Cost(*(Value(None, unit, source, reason=reason) for unit in ("J", "W", "W", "J", "J·s")))


def _sums(meters: Sequence[Meter], stored: StoredEnergy, lost: Sequence[str], duration: float) -> dict[str, Cost]:
    return {source: _cost(of, stored, lost, duration) for source, of in _by_source(meters).items()}


def _by_source(meters: Sequence[Meter]) -> dict[str, list[Meter]]:
    """What is added: what was measured; where a GPU has no counter, that with the integral of its power; estimates."""
    by_source: dict[str, list[Meter]] = {}
    for meter in meters:
        by_source.setdefault(meter.source, []).append(meter)
    if DERIVED in by_source:
        by_source[DERIVED] = [*by_source.get("measured", []), *by_source[DERIVED]]
    return {source: by_source[source] for source in ("measured", DERIVED, "estimated") if source in by_source}


def _integral(samples: Sequence[Sample], device: str, duration: float) -> Value | None:
    """J: the power samples, joined by straight lines, from the program's beginning to its end."""
    series = series_of(samples, device, "power")
    if len(series.times) < 2:
        return None
    inside = (series.times > 0) & (series.times < duration)
    moments = np.concatenate(([0.0], series.times[inside], [duration]))
    watts = np.interp(moments, series.times, series.values)
    return Value(float(np.trapezoid(watts, moments) / 1e9), "J", "derived")


def _states(samples: Sequence[Sample], device: str, duration: float) -> tuple[dict[str, float], dict[str, Value]]:
    """Shares of the time that the device was throttled, by reason; its clock, temperature, count of throttling."""
    throttled: dict[str, float] = {}
    for bits, share in _shares(series_of(samples, device, "throttle reasons"), duration):
        for word in throttling(int(bits)):
            throttled[word] = throttled.get(word, 0.0) + share
    states = {}
    clock = _shares(series_of(samples, device, "clock"), duration)
    if clock:
        states["clock"] = Value(sum(value * share for value, share in clock), "Hz", "derived")
    sensors = {sample.sensor for sample in samples if sample.device == device}
    heat = [value for sensor in sensors if sensor.endswith("temperature")
            for value, _ in _shares(series_of(samples, device, sensor), duration)]  # fmt: skip
    if heat:
        states["temperature"] = Value(max(heat), "°C", "measured")
    counts = [series_of(samples, device, sensor) for sensor in sensors if sensor.endswith("throttle count")]
    if counts:
        states["throttled"] = Value(sum(_added(one, duration) for one in counts), "1", "counted")
    return throttled, states


def _added(count: CounterSeries, duration: float) -> float:
    """By how much it grew from the last reading before the program to the first behind it, or those nearest to them."""
    first = max(int(np.searchsorted(count.times, 0, side="right")) - 1, 0)
    last = min(int(np.searchsorted(count.times, duration, side="left")), len(count.times) - 1)
    return float(count.values[last] - count.values[first])


def _shares(series: CounterSeries, duration: float) -> list[tuple[float, float]]:
    """(value, share of the program's time) of a state, which holds until it changes."""
    if not len(series.times) or not duration:
        return []
    begin = np.clip(series.times.astype(np.float64), 0, duration)
    spent = np.diff(np.append(begin, duration)) / duration
    return [(float(value), float(share)) for value, share in zip(series.values, spent, strict=True) if share > 0]


def _regions(stored: StoredEnergy, meters: Sequence[Meter]) -> list[Window]:
    of_regions = []
    for name in dict.fromkeys(name for name, _, _ in stored.regions):
        bounds = [(begin, end) for region, begin, end in stored.regions if region == name]
        begin, end = (np.array(side, dtype=np.float64) for side in zip(*bounds, strict=True))
        of_regions.append(mean_window("region", name, begin, end, len(bounds), meters))
    return of_regions


def _power(meter: Meter) -> tuple[tuple[float, float], ...]:
    """Mean power between readings: (s at the end of the interval, W)."""
    times = meter.counters[0][1].times
    if len(times) < 2:
        return ()
    value, _, _ = meter.between(times[:-1], times[1:])
    watts = value / (np.diff(times) / 1e9)
    return tuple((float(time) / 1e9, float(watt)) for time, watt in zip(times[1:], watts, strict=True))


def _finding(
    meters: Sequence[Meter], duration: float, extent: EnergyCoverage, stored: StoredEnergy, whole_run: bool
) -> Finding:
    """`whole_run`: start-up, warm-up and checkpoints are in the time, and in no step or epoch."""
    if not meters:
        known_reasons = [counter.reason for counter in stored.counters if counter.reason] or [
            lack.reason for lack in stored.missing
        ]
        return NoEnergy("; ".join(dict.fromkeys(known_reasons)) or reasons.NO_COUNTER)
    totals = []
    for source, of in _by_source(meters).items():
        total = add_values([meter.energy(0.0, duration) for meter in of], source)
        if total.value is None:
            return NoEnergy(total.reason)
        totals.append(SourceEnergy(total, tuple(meter.device for meter in of if meter.source == DERIVED)))
    lacking = (*extent.lacking, NEVER)
    return SpentEnergy(tuple(totals), duration, whole_run, extent.covers, lacking, _modelled(meters))


def _modelled(meters: Sequence[Meter]) -> str:
    """What a power model stands for, as coverage says it."""
    of = [meter for meter in meters if meter.source == "estimated"]
    return wording.join(in_order({counter.covers for meter in of for counter, _ in meter.counters}))


def _notes(stored: StoredEnergy, duration: float) -> list[Finding]:
    share = stored.cpu / (duration / 1e9) if stored.cpu and duration else None
    notes: list[Finding] = [ReadingRate(stored.readings, stored.interval, share)]
    # A refusal of one event is kept for every package that it counts.
    notes += dict.fromkeys(UnreadCounter(lack.what, lack.reason, lack.remedy) for lack in stored.missing)
    if any(counter.source == "measured" for counter in stored.counters):
        notes.append(WholeMachine())
    return notes


def _warnings(devices: Sequence[Device], extent: EnergyCoverage) -> list[Finding]:
    warnings: list[Finding] = []
    if extent.lost:
        warnings.append(LostCounters(tuple(lost_counter.name for lost_counter in extent.lost)))
    for device in devices:
        if device.disagreement is not None and abs(device.disagreement.value or 0.0) > DISAGREE:
            warnings.append(IntegralOff(device.name, device.disagreement.value or 0.0))
        often = device.states.get("throttled")
        if often is not None and often.value:
            warnings.append(ThrottledTimes(device.name, often.value))
        warnings += [ThrottledShare(device.name, share, reason) for reason, share in device.throttled.items()]
    return warnings
