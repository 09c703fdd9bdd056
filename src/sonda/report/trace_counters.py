"""Metrics of spans as counters of a trace: steps of a curve, a track for each metric and place.

A quantity that adds up is shown as a rate: its amount over the span's time, from the span's beginning to its end, where
it falls to 0 unless the next span begins there. A quantity that stands at a height, and a latency, is shown as it is.
Phases and activities of devices are shown, because none lies inside another; a span without a duration has no rate.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sonda.record.quantity import LEVELS, Metric
from sonda.record.span import Spans

SHOWN = ("phase", "kernel", "copy", "collective")
ON_STREAMS = ("kernel", "copy", "collective")
HEIGHTS = LEVELS | {"launch_latency"}
DISTURBED = ("count", "modelled")
"""Passes whose times say nothing about rates."""
NS = 1e9


@dataclass(frozen=True)
class Counter:
    """One point of one track."""

    node: str
    rank: int
    clock: str
    name: str
    time: int
    unit: str
    value: float


def metric_counters(spans: Spans) -> Iterator[Counter]:
    """Points of all tracks, each track in the order of time."""
    kind, passes = spans.words("kind"), spans.words("pass")
    shown = np.array([word in SHOWN for word in kind.words])[kind.codes]
    shown &= ~np.array([word in DISTURBED for word in passes.words])[passes.codes]
    for column, values in spans.metrics.items():
        metric = Metric.parse(column)
        rows = np.flatnonzero(shown & np.isfinite(values))
        if metric.quantity not in HEIGHTS:
            rows = rows[spans.number("duration")[rows] > 0]
        places: dict[tuple[str, int, str, str], list[int]] = {}
        for row in rows[np.argsort(spans.number("start")[rows], kind="stable")].tolist():
            places.setdefault(_place(spans, row), []).append(row)
        for (node, rank, clock, place), mine in places.items():
            high = metric.quantity in HEIGHTS
            name = f"{metric.quantity}{'' if high else ' rate'} {place} ({metric.source})"
            unit = metric.unit if high else f"{metric.unit}/s".replace("1/s", "per s")
            for time, value in _steps(spans, mine, values, high):
                yield Counter(node, rank, clock, name, time, unit, value)


def _place(spans: Spans, row: int) -> tuple[str, int, str, str]:
    node, clock, device, kind = (spans.words(name) for name in ("node", "clock", "device", "kind"))
    on_stream = kind.words[kind.codes[row]] in ON_STREAMS
    where = (
        f"{device.words[device.codes[row]]} stream {int(spans.number('stream')[row])}"
        if on_stream
        else f"thread {int(spans.number('thread')[row])}"
    )
    return node.words[node.codes[row]], int(spans.number("rank")[row]), clock.words[clock.codes[row]], where


def _steps(spans: Spans, rows: list[int], values: np.ndarray, high: bool) -> Iterator[tuple[int, float]]:
    starts, durations = spans.number("start"), spans.number("duration")
    for at, row in enumerate(rows):
        start, duration, value = int(starts[row]), int(durations[row]), float(values[row])
        yield start, value if high else value * NS / duration
        following = int(starts[rows[at + 1]]) if at + 1 < len(rows) else None
        if not high and (following is None or following > start + duration):
            yield start + duration, 0.0
