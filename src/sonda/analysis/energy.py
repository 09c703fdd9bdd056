"""What a run cost: energy per device and region with what it covers, above idle, and the energy-delay product."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sonda.analysis import wording
from sonda.analysis.energy_coverage import NEVER, Coverage, coverage, in_order
from sonda.analysis.energy_meters import (
    DERIVED,
    Counter,
    Kept,
    Metered,
    added,
    by_integral,
    counter_series,
    is_energy,
    kept_energy,
    metered,
    scaled,
    series_of,
    together,
)
from sonda.analysis.energy_nodes import energy_of_nodes, once
from sonda.analysis.energy_phases import phases_beneath
from sonda.analysis.energy_summary import Cost, Device, EnergySummary, Window
from sonda.analysis.energy_windows import mean_window, windows
from sonda.analysis.summary import Value
from sonda.record.counter_series import CounterSeries
from sonda.record.nodes import by_machine, machines_of
from sonda.record.run import Run
from sonda.record.sample import Sample
from sonda.record.throttle_reasons import throttling

WHOLE = " of the whole run"
"""Behind its time: start-up, warm-up and checkpoints are in it, and in no step or epoch."""
NO_IDLE = "idle power was not measured"
DISAGREE = 0.05
"""Counter and integral of power that differ by more are worth a sentence."""


def summarise_energy(run: Run, title: str = "") -> EnergySummary | None:
    """What the run cost, on all of its nodes; None where no energy was read."""
    parts, lost = by_machine(run)
    nodes = [*((name, _of_machine(part, title)) for name, part in parts), *((name, None) for name in lost)]
    known = [(name, part) for name, part in nodes if part is not None]
    machines = machines_of(run.info.target)
    found = known[0][1] if known else None
    if known and len(nodes) > 1:
        found = energy_of_nodes(known, [name for name, part in nodes if part is None], machines)
    return replace(found, notes=(*once(machines), *found.notes)) if found else None


def _of_machine(run: Run, title: str) -> EnergySummary | None:
    kept = kept_energy(run)
    if kept is None:
        return None
    spans = run.spans
    rows = np.flatnonzero(spans.where(kind="run"))
    duration = float(spans.number("duration")[rows[0]]) if len(rows) else 0.0
    meters = metered(kept, run.samples)
    extent = coverage(kept, meters)
    devices = tuple(_devices(kept, run.samples, meters, extent, duration))
    alone = is_energy(run)  # of any other run, its own summary says these
    return EnergySummary(
        run=run.id,
        title=title or str(run.info.workload.get("name") or "run"),
        time=Value(duration, "ns", "measured"),
        devices=devices,
        all=_sums(meters, kept, extent.without(), duration),
        used=_sums([one for one in meters if one.used], kept, extent.without(kept.used), duration),
        covers=extent.covers,
        not_covered=(*extent.lacking, NEVER),
        sentence=_sentence(meters, duration, extent, kept, "" if alone else WHOLE),
        regions=tuple(_regions(kept, meters)),
        windows=tuple(windows(spans, meters)),
        power={one.name: _power(one) for one in meters},
        estimated=frozenset(one.name for one in meters if one.source == "estimated"),
        notes=(*(run.info.notes if alone else ()), *_notes(kept, duration)),
        warnings=(*(run.info.disturbed if alone else ()), *_warnings(devices, extent)),
        modelled=_modelled(meters),
        parts=extent.parts,
        beneath=phases_beneath(spans, kept.regions, duration),
    )


def _devices(
    kept: Kept, samples: Sequence[Sample], meters: Sequence[Metered], extent: Coverage, duration: float
) -> list[Device]:
    found = []
    names = dict.fromkeys((one.device, one.source) for one in kept.counters)
    names |= dict.fromkeys((one.device, "measured") for one in samples if one.unit == "W")
    for device, source in names:
        meter = next((one for one in meters if (one.device, one.source) == (device, source)), None)
        if meter is None and source == "measured":
            meter = next((one for one in meters if (one.device, one.source) == (device, DERIVED)), None)
        cost = _cost([meter], kept, extent.without([device]), duration) if meter else _no_cost(kept, device, source)
        integral = _integral(samples, device, duration) if source == "measured" else None
        disagreement = None
        if integral is not None and integral.value and cost.energy.value and cost.energy.source == "measured":
            disagreement = Value(integral.value / cost.energy.value - 1, "1", "derived")
        parts = {
            one.sensor: _counter_energy(one, samples, duration)
            for one in kept.counters if (one.device, one.source) == (device, source)
        }  # fmt: skip
        throttled, states = _states(samples, device, duration)
        model = kept.devices.get(device, "")
        used = device in kept.used or not kept.used
        found.append(Device(device, model, used, cost, parts, integral, disagreement, throttled, states))
    return found


def _counter_energy(counter: Counter, samples: Sequence[Sample], duration: float) -> Value:
    if counter.state != "ok":
        return Value(None, "J", counter.source, reason=f"{counter.state}: {counter.reason}")
    series = counter_series(samples, counter)
    return Metered(counter.device, counter.source, ((counter, series),)).energy(0.0, duration)


def _cost(meters: Sequence[Metered], kept: Kept, lost: Sequence[str], duration: float) -> Cost:
    """Of these devices together; `lost` are counters of theirs that could not be believed."""
    seconds = duration / 1e9
    source = together(meters)
    energy = added([one.energy(0.0, duration) for one in meters], source)
    instead = {one.device for one in meters if one.source == DERIVED}
    lacking = [name for name in lost if name not in instead]
    if lacking and source != "estimated" and energy.value is not None:
        energy = replace(energy, reason=f"without {wording.join(lacking)}")
    idle = Value(None, "W", "derived", reason=NO_IDLE)
    if len(kept.idle) == 2 and kept.idle[1] > kept.idle[0]:
        spent = added([one.energy(*kept.idle) for one in meters], source)
        idle = scaled(spent, 1e9 / (kept.idle[1] - kept.idle[0]), "W")
    above = Value(None, "J", "derived", reason=idle.reason or energy.reason)
    if idle.value is not None and energy.value is not None:
        above = Value(energy.value - idle.value * seconds, "J", idle.source)
    power = scaled(energy, 1 / seconds, "W") if seconds else Value(None, "W", "derived", reason="no time passed")
    return Cost(energy, power, idle, above, scaled(energy, seconds, "J·s"))


def _no_cost(kept: Kept, device: str, source: str) -> Cost:
    mine = [one for one in kept.counters if one.device == device and one.source == source and one.reason]
    reason = "; ".join(f"{one.sensor} {one.state}: {one.reason}" for one in mine)
    if not reason:
        reason = "; ".join(f"{one['what']}: {one['reason']}" for one in kept.missing) or "no counter"
    return Cost(*(Value(None, unit, source, reason=reason) for unit in ("J", "W", "W", "J", "J·s")))


def _sums(meters: Sequence[Metered], kept: Kept, lost: Sequence[str], duration: float) -> dict[str, Cost]:
    return {source: _cost(of, kept, lost, duration) for source, of in _by_source(meters).items()}


def _by_source(meters: Sequence[Metered]) -> dict[str, list[Metered]]:
    """What is added: what was measured; where a GPU has no counter, that with the integral of its power; estimates."""
    found: dict[str, list[Metered]] = {}
    for one in meters:
        found.setdefault(one.source, []).append(one)
    if DERIVED in found:
        found[DERIVED] = [*found.get("measured", []), *found[DERIVED]]
    return {source: found[source] for source in ("measured", DERIVED, "estimated") if source in found}


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
    for reasons, share in _shares(series_of(samples, device, "throttle reasons"), duration):
        for word in throttling(int(reasons)):
            throttled[word] = throttled.get(word, 0.0) + share
    states = {}
    clock = _shares(series_of(samples, device, "clock"), duration)
    if clock:
        states["clock"] = Value(sum(value * share for value, share in clock), "Hz", "derived")
    sensors = {one.sensor for one in samples if one.device == device}
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


def _regions(kept: Kept, meters: Sequence[Metered]) -> list[Window]:
    found = []
    for name in dict.fromkeys(name for name, _, _ in kept.regions):
        bounds = [(begin, end) for other, begin, end in kept.regions if other == name]
        begin, end = (np.array(one, dtype=np.float64) for one in zip(*bounds, strict=True))
        found.append(mean_window("region", name, begin, end, len(bounds), meters))
    return found


def _power(meter: Metered) -> tuple[tuple[float, float], ...]:
    """Mean power between readings: (s at the end of the interval, W)."""
    times = meter.counters[0][1].times
    if len(times) < 2:
        return ()
    value, _, _ = meter.between(times[:-1], times[1:])
    watts = value / (np.diff(times) / 1e9)
    return tuple((float(time) / 1e9, float(watt)) for time, watt in zip(times[1:], watts, strict=True))


def _sentence(meters: Sequence[Metered], duration: float, extent: Coverage, kept: Kept, whole: str) -> str:
    if not meters:
        reasons = [one.reason for one in kept.counters if one.reason] or [one["reason"] for one in kept.missing]
        return f"No energy is known: {'; '.join(dict.fromkeys(reasons)) or 'no counter'}."
    said = []
    for source, of in _by_source(meters).items():
        total = added([one.energy(0.0, duration) for one in of], source)
        if total.value is None:
            return f"No energy is known: {total.reason}."
        watts = total.value / (duration / 1e9) if duration else 0.0
        what = wording.join([*extent.covers, *by_integral(of)])
        what = what if source != "estimated" else f"{_modelled(of)}, by a power model"
        interval = ""
        if source == "estimated" and total.low is not None and total.high is not None:
            interval = f" ({wording.amount(total.low, 'J')} to {wording.amount(total.high, 'J')})"
        spent = f"{wording.amount(total.value, 'J')}{interval} {source} in {wording.duration(duration)}{whole}"
        said.append(
            f"{spent}, {wording.amount(watts, 'W')} on average: {what}; not {', '.join([*extent.lacking, NEVER])}"
            if source == "measured"
            else f"{spent}: {what}"
        )
    return ". ".join(said) + "."


def _modelled(meters: Sequence[Metered]) -> str:
    """What a power model stands for, as coverage says it."""
    of = [one for one in meters if one.source == "estimated"]
    return wording.join(in_order({counter.covers for one in of for counter, _ in one.counters}))


def _notes(kept: Kept, duration: float) -> list[str]:
    said = [f"read {kept.readings:,} times, every {kept.interval:g} s"]
    if kept.cpu and duration:
        said[0] += f"; reading took {wording.percent(kept.cpu / (duration / 1e9))} of one processor"
    # A refusal of one event is kept for every package that it counts.
    said += dict.fromkeys(f"{one['what']}: {one['reason']}" + (f"; {one['remedy']}" if one.get("remedy") else "")
                          for one in kept.missing)  # fmt: skip
    if any(one.source == "measured" for one in kept.counters):
        said.append("sensors measure the whole machine: what other programs did meanwhile is in these numbers")
    return said


def _warnings(devices: Sequence[Device], extent: Coverage) -> list[str]:
    lost = [one.name for one in extent.lost]
    said = [f"the measured total is without {wording.join(lost)}: it is too low"] if lost else []
    for device in devices:
        if device.disagreement is not None and abs(device.disagreement.value or 0.0) > DISAGREE:
            said.append(
                f"{device.name}: the integral of power is {wording.percent(device.disagreement.value or 0.0)} off the "
                "energy counter: the load changes faster than power is sampled"
            )
        often = device.states.get("throttled")
        if often is not None and often.value:
            said.append(f"{device.name} was throttled {wording.plural(often.value, 'time')}: too hot")
        for reason, share in device.throttled.items():
            said.append(f"{device.name} was throttled for {wording.percent(share)} of the time: {reason}")
    return said
