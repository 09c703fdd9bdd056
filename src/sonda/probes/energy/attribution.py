"""Energy on spans: the counters integrated over the window of every span that is long enough to be resolved."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from sonda.probes.energy.readings import Reading, Readings
from sonda.record.quantities import Metric
from sonda.record.spans import Spans

KINDS = ("run", "part", "epoch", "step", "phase", "layer")
SOURCES = ("measured", "estimated")
GPU = ("cuda:", "gpu:")
"""How names of GPUs begin."""


def attribute(
    spans: Spans, readings: Readings, origin: int, devices: Collection[str] | None = None
) -> dict[str, np.ndarray]:
    """Columns `energy`, `energy_low` and `energy_high` (J) of the spans, for measured and for estimated counters.

    The energy is that of the machine's `devices` (None: all) in the span's window, whoever spent it. A span shorter
    than the time between readings, or between updates of a counter, has none: a straight line through the readings
    would give every such span the same power. A GPU works on a step or phase when it reaches it, which is later than
    the host: its window is its own where the spans say it (`device_start`). Spans of ranks after the first run at the
    same time and have none either, so that nothing is there twice. `origin` (ns) is the moment that spans count from.
    """
    found = {}
    for source in SOURCES:
        counters = [
            one for one in readings.counters(source)
            if one.usable and (devices is None or one.channel.device in devices)
        ]  # fmt: skip
        if counters:
            value, low, high = _windows(spans, counters, origin)
            for quantity, column in (("energy", value), ("energy_low", low), ("energy_high", high)):
                found[str(Metric(quantity, source))] = column
    return found


def resolution(counters: Sequence[Reading]) -> float:
    """ns: the shortest window that these counters resolve."""
    between = [float(np.median(np.diff(one.times))) for one in counters if len(one.times) > 1]
    return max([*between, *(1e9 * one.channel.update for one in counters)], default=np.inf)


def _windows(
    spans: Spans, counters: Sequence[Reading], origin: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    kind, rank = spans.words("kind"), spans.number("rank")
    wanted = np.array([word in KINDS for word in kind.words])[kind.codes]
    wanted &= spans.words("clock").equal("host") & ~spans.words("pass").equal("modelled")
    groups = [
        (group, *_when(spans, on_device))
        for on_device in (False, True)
        if (group := [one for one in counters if one.channel.device.startswith(GPU) == on_device])
    ]
    for group, _, duration in groups:
        wanted &= (duration >= resolution(group)) | kind.equal("run")
    wanted &= rank == (rank[wanted].min() if wanted.any() else 0)
    rows = np.flatnonzero(wanted)
    columns = np.full((3, len(spans)), np.nan)
    sums = np.zeros((3, len(rows)))
    for group, start, duration in groups:
        begin = start[rows] + origin
        for one in group:
            value, low, high = one.series.between(begin, begin + duration[rows])
            sums += (value, low * (1 - one.channel.uncertain), high * (1 + one.channel.uncertain))
    columns[:, rows] = sums
    return columns[0], columns[1], columns[2]


def _when(spans: Spans, on_device: bool) -> tuple[np.ndarray, np.ndarray]:
    """Start and duration of every span, ns; of steps and phases `on_device` where that was marked.

    There NaN where it is not known. Layers are not marked, so where steps are, layers have none.
    """
    start, duration = spans.number("start").astype(np.float64), spans.number("duration").astype(np.float64)
    there = spans.metric("device_start", "derived")
    if not on_device or np.isnan(there).all():
        return start, duration
    kind = spans.words("kind")
    marked = kind.equal("step") | kind.equal("phase") | kind.equal("layer")
    time = spans.metric("device_time", "measured")
    return np.where(marked, there, start), np.where(marked, time + 0 * there, duration)
