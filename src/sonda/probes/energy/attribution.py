"""Energy on spans: the counters integrated over the window of every span that is long enough to be resolved."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from sonda.probes.energy.readings import ChannelSeries, EnergyReadings
from sonda.record.quantities import Metric
from sonda.record.spans import Spans

KINDS = ("run", "part", "epoch", "step", "phase", "layer")
SOURCES = ("measured", "estimated")
GPU = ("cuda:", "gpu:")
"""How names of GPUs begin."""


def attribute_energy(
    spans: Spans, readings: EnergyReadings, origin: int, devices: Collection[str] | None = None
) -> dict[str, np.ndarray]:
    """Columns `energy`, `energy_low` and `energy_high` (J) of the spans, for measured and for estimated counters.

    A span gets what the machine's `devices` (None: all) spent in its window, whichever program spent it. A span that
    is shorter than the time between readings, or between updates of a counter, gets none: a straight line through the
    readings would give every such span the same power. A GPU works on a step or phase later than the host does; its
    window is its own where the spans have it (`device_start`). Ranks run at the same time, so only spans of the first
    one get energy: the sum then counts each joule once. `origin` (ns) is the moment that spans count from.
    """
    columns = {}
    for source in SOURCES:
        counters = [
            counter for counter in readings.counters(source)
            if counter.usable and (devices is None or counter.channel.device in devices)
        ]  # fmt: skip
        if counters:
            value, low, high = _integrate_windows(spans, counters, origin)
            for quantity, column in (("energy", value), ("energy_low", low), ("energy_high", high)):
                columns[str(Metric(quantity, source))] = column
    return columns


def shortest_window(counters: Sequence[ChannelSeries]) -> float:
    """ns: the shortest window that these counters resolve."""
    between = [float(np.median(np.diff(counter.times))) for counter in counters if len(counter.times) > 1]
    return max([*between, *(1e9 * counter.channel.update for counter in counters)], default=np.inf)


def _integrate_windows(
    spans: Spans, counters: Sequence[ChannelSeries], origin: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """Energy of every span (J) with its lower and upper bound; NaN for spans that get none."""
    kind, rank = spans.words("kind"), spans.number("rank")
    wanted = np.array([word in KINDS for word in kind.words])[kind.codes]
    wanted &= spans.words("clock").equal("host") & ~spans.words("pass").equal("modelled")
    groups = [
        (group, *_span_windows(spans, on_device))
        for on_device in (False, True)
        if (group := [counter for counter in counters if counter.channel.device.startswith(GPU) == on_device])
    ]
    for group, _, duration in groups:
        wanted &= (duration >= shortest_window(group)) | kind.equal("run")
    wanted &= rank == (rank[wanted].min() if wanted.any() else 0)
    rows = np.flatnonzero(wanted)
    columns = np.full((3, len(spans)), np.nan)
    sums = np.zeros((3, len(rows)))
    for group, start, duration in groups:
        begin = start[rows] + origin
        for counter in group:
            value, low, high = counter.counter_series.between(begin, begin + duration[rows])
            sums += (value, low * (1 - counter.channel.uncertain), high * (1 + counter.channel.uncertain))
    columns[:, rows] = sums
    return columns[0], columns[1], columns[2]


def _span_windows(spans: Spans, on_device: bool) -> tuple[np.ndarray, np.ndarray]:
    """Start and duration of every span, ns.

    With `on_device` steps and phases have the window in which the device worked on them, where the run marked it. The
    window is NaN where it is not known. Layers are never marked: where steps are, layers have NaN.
    """
    start, duration = spans.number("start").astype(np.float64), spans.number("duration").astype(np.float64)
    device_start = spans.metric("device_start", "derived")
    if not on_device or np.isnan(device_start).all():
        return start, duration
    kind = spans.words("kind")
    marked = kind.equal("step") | kind.equal("phase") | kind.equal("layer")
    time = spans.metric("device_time", "measured")
    return np.where(marked, device_start, start), np.where(marked, time + 0 * device_start, duration)
