"""Energy on spans: the counters integrated over the window of every span that is long enough to be resolved."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from sonda.probes.energy_readings import Reading, Readings
from sonda.record.quantity import Metric
from sonda.record.span import Spans

KINDS = ("run", "part", "epoch", "step", "phase", "layer")
SOURCES = ("measured", "estimated")


def attribute(
    spans: Spans, readings: Readings, origin: int, devices: Collection[str] | None = None
) -> dict[str, np.ndarray]:
    """Columns `energy`, `energy_low` and `energy_high` (J) of the spans, for measured and for estimated counters.

    The energy is that of the machine's `devices` (None: all) in the span's window, whoever spent it. A span shorter
    than the time between readings, or between updates of a counter, has none: a straight line through the readings
    would give every such span the same power. Spans of ranks after the first run at the same time and have none either,
    so that nothing is there twice. `origin` (ns) is the moment that spans count from.
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
    kind, duration, rank = spans.words("kind"), spans.number("duration"), spans.number("rank")
    wanted = np.array([word in KINDS for word in kind.words])[kind.codes]
    wanted &= spans.words("clock").equal("host") & ~spans.words("pass").equal("modelled")
    wanted &= (duration >= resolution(counters)) | kind.equal("run")
    wanted &= rank == (rank[wanted].min() if wanted.any() else 0)
    rows = np.flatnonzero(wanted)
    begin = spans.number("start")[rows] + origin
    columns = np.full((3, len(spans)), np.nan)
    sums = np.zeros((3, len(rows)))
    for one in counters:
        value, low, high = one.series.between(begin, begin + duration[rows])
        sums += (value, low * (1 - one.channel.uncertain), high * (1 + one.channel.uncertain))
    columns[:, rows] = sums
    return columns[0], columns[1], columns[2]
