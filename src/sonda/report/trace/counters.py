"""Metrics of spans as counters of a trace: steps of a curve, a track for each metric and place.

A quantity that adds up is shown as a rate: its amount over the span's time, from the span's beginning to its end, where
it falls to 0 unless the next span begins there. A quantity that stands at a height, and a latency, is shown as it is.
Phases and activities of devices are shown, because none lies inside another; a span without a duration has no rate.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from sonda.record.files.rows import RowFile, SortedRows
from sonda.record.quantities import LEVELS, Metric
from sonda.record.spans import Spans

SHOWN = ("phase", "kernel", "copy", "collective")
HEIGHTS = LEVELS | {"launch_latency"}
DISTURBED = ("count", "modelled")
"""Passes whose times say nothing about rates."""
NS = 1e9
POINT = np.dtype(
    [("metric", np.int64), ("place", np.int64), ("start", np.int64), ("row", np.int64), ("duration", np.int64),
     ("value", np.float64)]
)  # fmt: skip
AT_ONCE = 1 << 12


@dataclass(frozen=True)
class CounterSample:
    """One point of one track."""

    node: str
    rank: int
    clock: str
    name: str
    time: int
    unit: str
    value: float


class CounterRows:
    """The values of metrics, added as spans are read, then told track by track. To be closed."""

    def __init__(self, metrics: Sequence[str]) -> None:
        self._metrics = [Metric.parse(name) for name in metrics]
        self.places: list[tuple[str, int, str, str]] = []
        """Node, rank, clock and name of every thread and stream."""
        self._stack = ExitStack()
        self._rows = self._stack.enter_context(SortedRows(POINT, ("metric", "place", "start", "row")))

    def __enter__(self) -> CounterRows:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def add(self, spans: Spans, place: np.ndarray, first: int) -> None:
        """The next spans of a run: the number of each one's place, and how many were before them."""
        kind, passes = spans.words("kind"), spans.words("pass")
        shown = np.array([word in SHOWN for word in kind.words])[kind.codes]
        shown &= ~np.array([word in DISTURBED for word in passes.words])[passes.codes]
        for number, metric in enumerate(self._metrics):
            values = spans.metric(metric.quantity, metric.source)
            rows = np.flatnonzero(shown & np.isfinite(values))
            if metric.quantity not in HEIGHTS:
                rows = rows[spans.number("duration")[rows] > 0]
            made = np.zeros(len(rows), dtype=POINT)
            made["metric"], made["place"], made["row"] = number, place[rows], first + rows
            made["start"], made["duration"] = spans.number("start")[rows], spans.number("duration")[rows]
            made["value"] = values[rows]
            self._rows.add(made)

    def points(self) -> Iterator[CounterSample]:
        """Points of all tracks, each track in the order of time; of a metric, the place that has it first before."""
        with RowFile(POINT) as file:
            stretches: list[list[tuple[int, int, int, int]]] = [[] for _ in self._metrics]
            for rows in self._rows.blocks():
                at = len(file)
                file.append(rows)
                edges = np.flatnonzero(np.diff(rows["metric"]) | np.diff(rows["place"])) + 1
                for first, stop in zip([0, *edges.tolist()], [*edges.tolist(), len(rows)], strict=True):
                    metric, _, start, row, *_ = rows[first].tolist()
                    before = stretches[metric][-1] if stretches[metric] else None
                    if before is not None and before[3] == at + first and self._continues_track(file, at + first):
                        stretches[metric][-1] = (*before[:3], at + stop)
                    else:
                        stretches[metric].append((start, row, at + first, at + stop))
            for metric, mine in zip(self._metrics, stretches, strict=True):
                for _, _, first, stop in sorted(mine):
                    yield from self._track(metric, file, first, stop)

    def _continues_track(self, file: RowFile, at: int) -> bool:
        """Whether a row continues the track of the one before."""
        return bool(file[at - 1][:2] == file[at][:2])

    def _track(self, metric: Metric, file: RowFile, first: int, stop: int) -> Iterator[CounterSample]:
        node, rank, clock, place = self.places[file[first][1]]
        high = metric.quantity in HEIGHTS
        name = f"{metric.quantity}{'' if high else ' rate'} {place} ({metric.source})"
        unit = metric.unit if high else f"{metric.unit}/s".replace("1/s", "per s")
        for time, value in _steps(file, first, stop, high):
            yield CounterSample(node, rank, clock, name, time, unit, value)


def _steps(file: RowFile, first: int, stop: int, high: bool) -> Iterator[tuple[int, float]]:
    ended: int | None = None
    for begin in range(first, stop, AT_ONCE):
        for _, _, start, _, duration, value in file.read(begin, min(stop, begin + AT_ONCE)).tolist():
            if ended is not None and start > ended:
                yield ended, 0.0
            yield start, value if high else value * NS / duration
            ended = None if high else start + duration
    if ended is not None:
        yield ended, 0.0
