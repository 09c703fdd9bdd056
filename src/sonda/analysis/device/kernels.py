"""Kernels by name: how often each ran, how long, how long it waited to begin, what was counted in it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from sonda.record.spans import Spans

ON_DEVICE = ("kernel", "collective", "copy")
LATENCY = "launch_latency:measured"


@dataclass
class KernelTotals:
    """One name on all devices and ranks together."""

    name: str
    kind: str
    launches: int = 0
    total: int = 0
    """ns."""
    shortest: int = 0
    longest: int = 0
    squares: float = 0.0
    """Sum of squared deviations from the mean, ns²."""
    latency: float = 0.0
    """ns, sum over the launches whose latency is known."""
    latencies: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    """Sums by column, of the launches that have them."""
    counted: dict[str, int] = field(default_factory=dict)
    """How many launches have each."""

    @property
    def mean(self) -> float:
        return self.total / self.launches

    @property
    def deviation(self) -> float:
        """ns, of single launches; NaN for one."""
        return math.sqrt(self.squares / (self.launches - 1)) if self.launches > 1 else math.nan

    def add(self, durations: np.ndarray) -> None:
        """More launches, durations in ns."""
        count, total = len(durations), int(durations.sum())
        mean = total / count
        squares = float(((durations - mean) ** 2).sum())
        if self.launches:
            # Chan, Golub and LeVeque's update of a variance (1979): no difference of large sums.
            delta = mean - self.mean
            self.squares += squares + delta * delta * self.launches * count / (self.launches + count)
            self.shortest = min(self.shortest, int(durations.min()))
        else:
            self.squares, self.shortest = squares, int(durations.min())
        self.longest = max(self.longest, int(durations.max()))
        self.launches += count
        self.total += total


class KernelTable:
    """Collects blocks of spans; a name's rows may come in any order."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], KernelTotals] = {}

    def feed(self, spans: Spans, rows: np.ndarray) -> None:
        """`rows` are the activities of devices among these spans."""
        kind, name = spans.words("kind"), spans.words("name")
        keys = kind.codes[rows].astype(np.int64) * len(name.words) + name.codes[rows]
        order = np.argsort(keys, kind="stable")
        ordered = rows[order]
        values, first = np.unique(keys[order], return_index=True)
        duration = spans.number("duration")
        for key, mine in zip(values.tolist(), np.split(ordered, first[1:]), strict=True):
            of, called = kind.words[key // len(name.words)], name.words[key % len(name.words)]
            totals = self._found.setdefault((of, called), KernelTotals(called, of))
            totals.add(duration[mine])
            for column, all_values in spans.metrics.items():
                known = all_values[mine]
                known = known[~np.isnan(known)]
                if not len(known):
                    continue
                if column == LATENCY:
                    totals.latency += float(known.sum())
                    totals.latencies += len(known)
                else:
                    totals.metrics[column] = totals.metrics.get(column, 0.0) + float(known.sum())
                    totals.counted[column] = totals.counted.get(column, 0) + len(known)

    def rows(self) -> tuple[KernelTotals, ...]:
        """Longest in all first."""
        return tuple(sorted(self._found.values(), key=lambda kernel: (-kernel.total, kernel.kind, kernel.name)))


def on_device(spans: Spans) -> np.ndarray:
    """Rows of the activities of devices."""
    mask = np.zeros(len(spans), dtype=bool)
    for kind in ON_DEVICE:
        mask |= spans.words("kind").equal(kind)
    return np.flatnonzero(mask)
