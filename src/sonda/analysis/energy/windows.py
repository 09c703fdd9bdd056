"""Energy of epochs, steps and phases.

What is longer than the time between readings is integrated over its windows. Phases that are shorter cannot be: a
straight line through the readings would give all of them the same power. But readings fall on different places of the
steps, so that each interval between two readings holds the phases in other shares; their powers are then the
least-squares solution of `energy = sum(power x time)` over all intervals, with its 95 % interval; missing where that
includes 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sonda.analysis import reasons, wording
from sonda.analysis.energy.meters import DERIVED, Meter, add_values
from sonda.analysis.energy.summary import Window
from sonda.analysis.span_tree import nearest
from sonda.analysis.statistics import student
from sonda.analysis.steps.training import TEST
from sonda.analysis.summary import Value
from sonda.record.spans import Spans, phase_order
from sonda.record.target import CorunFacts

LEAST_FREEDOM = 5
"""Intervals beyond the unknowns; with fewer the 95 % interval is wider than twice that of many."""
SHARP = 10
"""How much longer than the uncertainty of a reading's moment a phase must be to be told from its neighbours: with less,
errors of the times draw the powers of all phases together."""
MOST_EPOCHS = 1000
GPU = ("cuda:", "gpu:")
"""How names of GPUs begin."""

Times = tuple[np.ndarray, np.ndarray]
"""Beginnings and ends, ns."""


def windows(spans: Spans, meters: Sequence[Meter]) -> Iterator[Window]:
    """Epochs, then the step and the phases of every part. Nothing where nothing was metered."""
    if not meters:
        return
    rank = spans.number("rank")
    first = rank == (rank.min() if len(rank) else 0)
    begin = spans.number("start").astype(np.float64)
    end = begin + spans.number("duration")
    device = _on_device(spans, begin, end)
    part = _part_names(spans)
    epochs = np.flatnonzero(first & spans.where(kind="epoch"))
    epochs = epochs[np.argsort(begin[epochs], kind="stable")][:MOST_EPOCHS]
    for name, row in zip(_epoch_names(spans, part, epochs), epochs.tolist(), strict=True):
        yield mean_window("epoch", name, begin[[row]], end[[row]], 1, meters)
    names = spans.words("name").decoded()
    for part_name in dict.fromkeys(part[first & spans.where(kind="step")].tolist()):
        starts, ends, count = _groups(spans, np.flatnonzero(first & spans.where(kind="step")), part == part_name, begin)
        if not count:
            continue
        whole = begin[starts], end[ends]
        on_device = (device[0][starts], device[1][ends]) if device is not None else None
        yield mean_window("step", part_name, *whole, count, meters, on_device)
        inside = first & spans.where(kind="phase", pass_="timed") & (part == part_name)
        rows = {name: inside & (names == name) for name in sorted(set(names[inside].tolist()), key=phase_order)}
        host = _Side(whole, {name: (begin[of], end[of]) for name, of in rows.items()})
        there = None
        if device is not None and on_device is not None:
            there = _Side(on_device, {name: (device[0][of], device[1][of]) for name, of in rows.items()})
        yield from _phases(part_name, host, there, count, meters)


def company_windows(spans: Spans, corun: CorunFacts, meters: Sequence[Meter]) -> Iterator[Window]:
    """Programs that ran side by side: the energy of the machine in the windows of each company, whoever spent it.

    `corun` is what the run's target keeps of its windows, by whose number (`call`) epochs are named.
    """
    rows = np.flatnonzero(spans.where(kind="epoch"))
    begin = spans.number("start").astype(np.float64)
    end = begin + spans.number("duration")
    number, label = spans.number("call"), spans.words("name").decoded()
    companies: dict[str, list[np.ndarray]] = {}
    for window, facts in enumerate(corun.windows):
        inside = rows[number[rows] == window]
        if len(inside):
            partition = f" ({facts.partition})" if facts.partition else ""
            companies.setdefault(f"{label[inside[0]]}{partition}", []).append(inside)
    for name, members in companies.items() if meters else ():
        # Members of a window begin and end within a step of each other: all of them ran from the last to the first.
        begins = np.array([begin[inside].max() for inside in members])
        ends = np.array([end[inside].min() for inside in members])
        yield mean_window("company", name, begins, ends, len(members), meters)


@dataclass(frozen=True)
class _Side:
    """Windows as the host or as a GPU saw them: of all timed steps, and of the phases by name."""

    steps: Times
    phases: Mapping[str, Times]


def _on_device(spans: Spans, begin: np.ndarray, end: np.ndarray) -> Times | None:
    """The windows of steps and phases on the GPU, NaN where they are not known; None where no GPU was marked.

    The host launches work and goes on, so that a GPU works on a phase later than the host, and often for longer.
    """
    start = spans.metric("device_start", "derived")
    if np.isnan(start).all():
        return None
    of_device = spans.where(kind="step") | spans.where(kind="phase")
    time = spans.metric("device_time", "measured")
    return np.where(of_device, start, begin), np.where(of_device, start + time, end)


def _is_gpu(meter: Meter) -> bool:
    return meter.device.startswith(GPU)


def mean_window(
    kind: str,
    name: str,
    begin: np.ndarray,
    end: np.ndarray,
    count: int,
    meters: Sequence[Meter],
    on_device: Times | None = None,
) -> Window:
    """The energy in all of these windows together, divided by `count`; a GPU's in those `on_device`, where known."""
    devices = {}
    time = float((end - begin).sum()) / count
    for meter in meters:
        from_, to = on_device if on_device is not None and _is_gpu(meter) else (begin, end)
        sums = [float(column.sum()) / count for column in meter.between(from_, to)]
        shortest = float((to - from_).min())
        needed = meter.resolution
        if np.isnan(shortest):
            value = Value(None, "J", meter.source, reason=reasons.GPU_TIME_UNKNOWN)
        elif np.isnan(sums[0]):
            value = Value(None, "J", meter.source, reason=reasons.COUNTER_READ_IN_PART)
        elif shortest < needed:
            value = Value(None, "J", meter.source, reason=_too_short(shortest, needed))
        else:
            value = meter.value(*sums)
        devices[meter.name] = value
    return _window(kind, name, count, time, devices, meters)


def powers(
    meter: Meter, phases: Mapping[str, tuple[np.ndarray, np.ndarray]], begin: np.ndarray, end: np.ndarray
) -> dict[str, tuple[float, float]] | str:
    """W of every phase and half of its 95 % interval; a reason where that cannot be solved.

    `phases` are the beginnings and ends of each; only intervals between readings inside `begin` to `end` are used.
    """
    series = meter.counters[0][1]
    # All at the moments of the first: one that could not be read for a moment lies on a straight line there.
    total = np.sum(
        [
            np.interp(series.times, series_of_counter.times, series_of_counter.values)
            for _, series_of_counter in meter.counters
        ],
        axis=0,
    )
    changed = np.concatenate(([True], np.diff(total) != 0))
    times = series.times[changed].astype(np.float64)
    inside = np.searchsorted(begin, times[:-1], side="right") == np.searchsorted(end, times[1:], side="left") + 1
    if not phases:
        return reasons.PHASES_TOO_SHORT
    if not inside.any():
        return reasons.NO_INTERVAL_IN_STEPS
    energy = np.diff(total[changed])[inside]
    seconds = np.array([_spent(*bounds, times - series.lag)[inside] for bounds in phases.values()]) / 1e9
    rest = (np.diff(times)[inside] / 1e9) - seconds.sum(axis=0)
    table = np.vstack([seconds, rest]).T
    if np.abs(rest).max() < 1e-6:
        table = table[:, :-1]
    freedom = len(energy) - table.shape[1]
    if freedom < LEAST_FREEDOM or np.linalg.matrix_rank(table) < table.shape[1]:
        return reasons.FEW_INTERVALS.format(len(energy), len(phases))
    solution = np.linalg.lstsq(table, energy, rcond=None)[0]
    variance = float(((energy - table @ solution) ** 2).sum()) / freedom
    error = np.sqrt(np.diag(np.linalg.inv(table.T @ table)) * variance) * student(0.975, freedom)
    return {name: (float(solution[at]), float(error[at])) for at, name in enumerate(phases)}


def _phases(part: str, host: _Side, device: _Side | None, count: int, meters: Sequence[Meter]) -> Iterator[Window]:
    solved: dict[str, dict[str, tuple[float, float]] | str] = {}
    spent: dict[str, dict[str, float]] = {}
    by_name = {meter.name: meter for meter in meters}
    for meter in meters:
        side = device if device is not None and _is_gpu(meter) else host
        if meter.source == DERIVED:
            solved[meter.name] = reasons.POWER_SAMPLED
            continue
        sharp = 2 * meter.counters[0][1].lag * SHARP
        lasted = {name: to - from_ for name, (from_, to) in side.phases.items()}
        resolved = {name: bounds for name, bounds in side.phases.items() if np.median(lasted[name]) >= sharp}
        solved[meter.name] = powers(meter, resolved, *side.steps) if not _unknown(side) else reasons.GPU_TIME_UNKNOWN
        spent[meter.name] = {name: float(durations.sum()) / count / 1e9 for name, durations in lasted.items()}
    for name, (from_, to) in host.phases.items():
        time = float((to - from_).sum()) / count
        direct = mean_window("phase", name, from_, to, count, meters, device.phases[name] if device else None)
        devices = {}
        for device_name, value in direct.devices.items():
            solution = solved[device_name]
            if value.value is not None:
                devices[device_name] = value
            elif isinstance(solution, str) or name not in solution:
                why = solution if isinstance(solution, str) else reasons.PHASE_TOO_SHORT
                devices[device_name] = Value(None, "J", value.source, reason=reasons.BETWEEN_READINGS.format(why))
            else:
                devices[device_name] = _solved(by_name[device_name], *solution[name], spent[device_name][name])
        yield _window("phase", f"{part} {name}".strip(), count, time, devices, meters)


def _unknown(side: _Side) -> bool:
    return any(bool(np.isnan(column).any()) for times in (side.steps, *side.phases.values()) for column in times)


def _solved(meter: Meter, power: float, error: float, seconds: float) -> Value:
    """`derived` from a sensor; from a model it stays an estimate, with what the model leaves open beyond the fit."""
    source = "estimated" if meter.source == "estimated" else "derived"
    if power <= error:
        reason = reasons.TOO_UNSURE.format(power * seconds, error * seconds)
        return Value(None, "J", source, reason=reason)
    uncertain = max(counter.uncertain for counter, _ in meter.counters)
    low, high = (power - error) * (1 - uncertain), (power + error) * (1 + uncertain)
    bounds = meter.bounds if source == "estimated" else ""
    return Value(power * seconds, "J", source, low * seconds, high * seconds, bounds=bounds)


def _window(
    kind: str, name: str, count: int, time: float, devices: dict[str, Value], meters: Sequence[Meter]
) -> Window:
    used = [devices[meter.name] for meter in meters if meter.used]
    lasted = Value(time, "ns", "measured")
    return Window(kind, name, count, lasted, devices, _sum(list(devices.values())), _sum(used))


def _sum(values: Sequence[Value]) -> Value:
    """Estimates count only where nothing else is known; missing where any part is."""
    real = [value for value in values if value.source != "estimated"] or list(values)
    lost = next((value for value in real if value.value is None), None)
    if lost is not None or not real:
        return Value(None, "J", "derived", reason=lost.reason if lost is not None else reasons.NO_COUNTER_IN_USE)
    source = real[0].source if len({value.source for value in real}) == 1 else "derived"
    return add_values(real, source)


def _groups(
    spans: Spans, steps: np.ndarray, of_part: np.ndarray, begin: np.ndarray
) -> tuple[np.ndarray, np.ndarray, int]:
    """First and last row of timed steps of a part that follow each other, and how many steps are in them.

    A step of another part in between ends a group, and so does the end of an epoch: what is done there is no step.
    """
    steps = steps[np.argsort(begin[steps], kind="stable")]
    wanted = (spans.words("pass").equal("timed") & of_part)[steps]
    parent = spans.number("parent")[steps]
    follows = wanted[1:] & wanted[:-1] & (parent[1:] == parent[:-1])
    starts = wanted & ~np.concatenate(([False], follows))
    ends = wanted & ~np.concatenate((follows, [False]))
    return steps[starts], steps[ends], int(wanted.sum())


def _epoch_names(spans: Spans, part: np.ndarray, epochs: np.ndarray) -> Iterator[str]:
    """`train 3`, and `test` of a training, which has one; epochs that a program does not announce are counted."""
    names, call = spans.words("name").decoded(), spans.number("call")
    seen: dict[str, int] = {}
    for row in epochs.tolist():
        of = str(part[row])
        seen[of] = seen.get(of, 0) + 1
        announced = bool(of) and names[row] == of
        if announced and of == TEST and (part[epochs] == TEST).sum() == 1:
            yield of
        else:
            yield f"{of} {int(call[row]) + 1 if announced else seen[of]}".strip()


def _part_names(spans: Spans) -> np.ndarray:
    """The name of the part that each span lies in; '' outside."""
    at = nearest(spans.number("parent"), spans.where(kind="part"))
    return np.where(at >= 0, spans.words("name").decoded()[at], "")


def _spent(begin: np.ndarray, end: np.ndarray, times: np.ndarray) -> np.ndarray:
    """ns of these intervals, which do not overlap, between every two of the times."""
    order = np.argsort(begin, kind="stable")
    knots = np.stack([begin[order], end[order]], axis=1).ravel()
    lengths = np.stack([np.zeros(len(begin)), end[order] - begin[order]], axis=1).ravel()
    return np.diff(np.interp(times, knots, np.cumsum(lengths)))


def _too_short(shortest: float, needed: float) -> str:
    return reasons.SHORTER_THAN_READINGS.format(wording.duration(shortest), wording.duration(needed))
