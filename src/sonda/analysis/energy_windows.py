"""Energy of epochs, steps and phases.

What is longer than the time between readings is integrated over its windows. Phases that are shorter cannot be: a
straight line through the readings would give all of them the same power. But readings fall on different places of the
steps, so that each interval between two readings holds the phases in other shares; their powers are then the
least-squares solution of `energy = sum(power x time)` over all intervals, with its 95 % interval; missing where that
includes 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from sonda.analysis import wording
from sonda.analysis.energy_meters import Metered
from sonda.analysis.energy_summary import Window
from sonda.analysis.statistics import student
from sonda.analysis.summary import Value
from sonda.record.span import PHASES, Spans

LEAST_FREEDOM = 5
"""Intervals beyond the unknowns; with fewer the 95 % interval is wider than twice that of many."""
SHARP = 10
"""How much longer than the uncertainty of a reading's moment a phase must be to be told from its neighbours: with less,
errors of the times draw the powers of all phases together."""
MOST_EPOCHS = 1000


def windows(spans: Spans, meters: Sequence[Metered]) -> Iterator[Window]:
    """Epochs, then the step and the phases of every part. Nothing where nothing was metered."""
    if not meters:
        return
    rank = spans.number("rank")
    first = rank == (rank.min() if len(rank) else 0)
    begin = spans.number("start").astype(np.float64)
    end = begin + spans.number("duration")
    part = _part_names(spans)
    epochs = np.flatnonzero(first & spans.where(kind="epoch"))[:MOST_EPOCHS]
    for number, row in enumerate(epochs.tolist(), start=1):
        name = f"{part[row]} {number}".strip()
        yield mean_window("epoch", name, begin[[row]], end[[row]], 1, meters)
    names = spans.words("name").decoded()
    for one in dict.fromkeys(part[first & spans.where(kind="step")].tolist()):
        steps = np.flatnonzero(first & spans.where(kind="step") & (part == one))
        from_, to, count = _groups(spans, steps, begin, end)
        if not count:
            continue
        yield mean_window("step", one, from_, to, count, meters)
        inside = first & spans.where(kind="phase", pass_="timed") & (part == one)
        times = {
            name: (begin[inside & (names == name)], end[inside & (names == name)])
            for name in sorted(set(names[inside].tolist()), key=_place)
        }
        yield from _phases(one, times, from_, to, count, meters)


def mean_window(
    kind: str, name: str, begin: np.ndarray, end: np.ndarray, count: int, meters: Sequence[Metered]
) -> Window:
    """The energy in all of these windows together, divided by `count`."""
    devices = {}
    time = float((end - begin).sum()) / count
    for meter in meters:
        sums = [float(one.sum()) / count for one in meter.between(begin, end)]
        shortest = float((end - begin).min())
        needed = meter.resolution
        if np.isnan(sums[0]):
            value = Value(None, "J", meter.source, reason="the counter was not read all of that time")
        elif shortest < needed:
            value = Value(None, "J", meter.source, reason=_too_short(shortest, needed))
        else:
            value = Value(sums[0], "J", meter.source, sums[1], sums[2])
        devices[meter.name] = value
    return _window(kind, name, count, time, devices)


def powers(
    meter: Metered, phases: Mapping[str, tuple[np.ndarray, np.ndarray]], begin: np.ndarray, end: np.ndarray
) -> dict[str, tuple[float, float]] | str:
    """W of every phase and half of its 95 % interval; a reason where that cannot be solved.

    `phases` are the beginnings and ends of each; only intervals between readings inside `begin` to `end` are used.
    """
    series = meter.counters[0][1]
    total = sum(one.values for _, one in meter.counters if len(one.values) == len(series.values))
    changed = np.concatenate(([True], np.diff(np.asarray(total)) != 0))
    times = series.times[changed].astype(np.float64)
    inside = np.searchsorted(begin, times[:-1], side="right") == np.searchsorted(end, times[1:], side="left") + 1
    if not phases:
        return "all phases are too short against the updates of the counter"
    if not inside.any():
        return "no interval between two readings lies within the steps"
    energy = np.diff(np.asarray(total)[changed])[inside]
    seconds = np.array([_spent(*one, times - series.lag)[inside] for one in phases.values()]) / 1e9
    rest = (np.diff(times)[inside] / 1e9) - seconds.sum(axis=0)
    table = np.vstack([seconds, rest]).T
    if np.abs(rest).max() < 1e-6:
        table = table[:, :-1]
    freedom = len(energy) - table.shape[1]
    if freedom < LEAST_FREEDOM or np.linalg.matrix_rank(table) < table.shape[1]:
        return f"{len(energy)} intervals between readings are too few to tell {len(phases)} phases apart"
    solution = np.linalg.lstsq(table, energy, rcond=None)[0]
    variance = float(((energy - table @ solution) ** 2).sum()) / freedom
    error = np.sqrt(np.diag(np.linalg.inv(table.T @ table)) * variance) * student(0.975, freedom)
    return {name: (float(solution[at]), float(error[at])) for at, name in enumerate(phases)}


def _phases(
    part: str, phases: Mapping[str, tuple[np.ndarray, np.ndarray]], begin: np.ndarray, end: np.ndarray, count: int,
    meters: Sequence[Metered],
) -> Iterator[Window]:  # fmt: skip
    solved: dict[str, dict[str, tuple[float, float]] | str] = {}
    for meter in meters:
        sharp = 2 * meter.counters[0][1].lag * SHARP
        solved[meter.name] = powers(
            meter, {name: one for name, one in phases.items() if np.median(one[1] - one[0]) >= sharp}, begin, end
        )
    for name, (from_, to) in phases.items():
        time = float((to - from_).sum()) / count
        direct = mean_window("phase", name, from_, to, count, meters)
        devices = {}
        for device, value in direct.devices.items():
            found = solved[device]
            if value.value is not None:
                devices[device] = value
            elif isinstance(found, str) or name not in found:
                why = found if isinstance(found, str) else "too short against the updates of the counter"
                devices[device] = Value(
                    None, "J", value.source, reason=f"shorter than the time between readings; {why}"
                )
            else:
                devices[device] = _solved(*found[name], time / 1e9)
        yield _window("phase", f"{part} {name}".strip(), count, time, devices)


def _solved(power: float, error: float, seconds: float) -> Value:
    if power <= error:
        reason = f"{power * seconds:.2g} ± {error * seconds:.2g} J: run longer, or read more often"
        return Value(None, "J", "derived", reason=reason)
    return Value(power * seconds, "J", "derived", (power - error) * seconds, (power + error) * seconds)


def _window(kind: str, name: str, count: int, time: float, devices: dict[str, Value]) -> Window:
    real = [one for one in devices.values() if one.source != "estimated"] or list(devices.values())
    lost = next((one for one in real if one.value is None), None)
    if lost is not None:
        total = Value(None, "J", "derived", reason=lost.reason)
    else:
        source = real[0].source if len({one.source for one in real}) == 1 else "derived"
        total = Value(*(sum(one.value or 0.0 for one in real), "J", source),
                      sum(one.low or 0.0 for one in real), sum(one.high or 0.0 for one in real))  # fmt: skip
    return Window(kind, name, count, Value(time, "ns", "measured"), devices, total)


def _groups(
    spans: Spans, steps: np.ndarray, begin: np.ndarray, end: np.ndarray
) -> tuple[np.ndarray, np.ndarray, int]:  # fmt: skip
    """Windows of timed steps that follow each other, and how many steps are in them."""
    steps = steps[np.argsort(begin[steps], kind="stable")]
    timed = spans.words("pass").equal("timed")[steps]
    starts = timed & ~np.concatenate(([False], timed[:-1]))
    ends = timed & ~np.concatenate((timed[1:], [False]))
    return begin[steps[starts]], end[steps[ends]], int(timed.sum())


def _part_names(spans: Spans) -> np.ndarray:
    """The name of the part that each span lies in; '' outside."""
    parent, is_part = spans.number("parent"), spans.where(kind="part")
    at = np.arange(len(parent))
    for _ in range(64):  # modules inside each other are no deeper; parts are near the top anyway
        moving = (at >= 0) & ~np.where(at >= 0, is_part[at], False)
        if not moving.any():
            break
        at[moving] = parent[at[moving]]
    return np.where(at >= 0, spans.words("name").decoded()[at], "")


def _spent(begin: np.ndarray, end: np.ndarray, times: np.ndarray) -> np.ndarray:
    """ns of these intervals, which do not overlap, between every two of the times."""
    order = np.argsort(begin, kind="stable")
    knots = np.stack([begin[order], end[order]], axis=1).ravel()
    lengths = np.stack([np.zeros(len(begin)), end[order] - begin[order]], axis=1).ravel()
    return np.diff(np.interp(times, knots, np.cumsum(lengths)))


def _place(name: str) -> tuple[int, str]:
    return (PHASES.index(name) if name in PHASES else len(PHASES), name)


def _too_short(shortest: float, needed: float) -> str:
    return f"{wording.duration(shortest)} long, and energy is known every {wording.duration(needed)}"
