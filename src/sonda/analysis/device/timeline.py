"""The timeline of a device: when it computes, communicates, copies, or does nothing, and what it then waits for.

Definitions are those of Holistic Trace Analysis, so that figures can be held against each other (it tells copies from
kernels by their names, Sonda by what the trace calls them): the window reaches
from the beginning of the first activity to the end of the last; idle is what no activity covers; compute is the union
of the kernels that neither communicate nor copy; non-compute is the rest of the busy time. A gap on a stream is a *host
wait* where the next activity was launched only after the last had ended, a *kernel wait* where it is below 30 µs, and
*other* else.

Activities are taken in blocks in the order of their starts; what is open at the end of a block is all that is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

COMPUTE, COMMUNICATION, COPY = range(3)
CLASSES = {"kernel": COMPUTE, "collective": COMMUNICATION, "copy": COPY}
"""What kinds of spans on a device are."""
KERNEL_WAIT_NS = 30_000
"""HTA's default for the delay between kernels that follow each other at once; it says ns and compares with µs."""


@dataclass(frozen=True)
class StreamTime:
    """One stream. All times in ns; the waits are its gaps, from its first activity to its last."""

    stream: int
    activities: int
    busy: int
    """Sum over its activities."""
    host_wait: int
    kernel_wait: int
    other_wait: int


@dataclass(frozen=True)
class DeviceTime:
    """One device of one rank. All times in ns."""

    rank: int
    device: str
    activities: int
    begin: int
    end: int
    masks: tuple[int, ...]
    """Time by what ran at once: place 1 only compute, 2 only communication, 3 both, 4 copies, …; place 0 nothing."""
    several: int
    """Time with two or more activities at once."""
    streams: tuple[StreamTime, ...]

    @property
    def window(self) -> int:
        return self.end - self.begin

    @property
    def idle(self) -> int:
        return self.masks[0]

    @property
    def busy(self) -> int:
        """The union of all activities."""
        return self.window - self.idle

    def union(self, kind: int) -> int:
        """Time with at least one activity of a class."""
        return sum(time for mask, time in enumerate(self.masks) if mask >> kind & 1)

    @property
    def compute(self) -> int:
        return self.union(COMPUTE)

    @property
    def non_compute(self) -> int:
        return self.busy - self.compute

    @property
    def communication(self) -> int:
        return self.union(COMMUNICATION)

    @property
    def copying(self) -> int:
        return self.union(COPY)

    @property
    def hidden_communication(self) -> int:
        """Communication while something is computed."""
        return self.masks[3] + self.masks[7]

    @property
    def hidden_copying(self) -> int:
        return self.masks[5] + self.masks[7]

    @property
    def waits(self) -> dict[str, int]:
        """Gaps of all streams together by what they wait for."""
        return {
            "host": sum(stream.host_wait for stream in self.streams),
            "kernel": sum(stream.kernel_wait for stream in self.streams),
            "other": sum(stream.other_wait for stream in self.streams),
        }


@dataclass
class _Stream:
    activities: int = 0
    busy: int = 0
    last_end: int | None = None
    waits: np.ndarray = field(default_factory=lambda: np.zeros(3, np.int64))

    def feed(self, start: np.ndarray, end: np.ndarray, launch: np.ndarray) -> None:
        # Activities of one stream may overlap (kernels of a graph do): a gap begins where all before it have ended.
        reached = np.maximum.accumulate(end if self.last_end is None else np.concatenate([[self.last_end], end]))
        before = np.concatenate([reached[:1], reached[:-1]]) if self.last_end is None else reached[:-1]
        gap = np.maximum(start - before, 0)
        if self.last_end is None:
            gap[0] = 0
        on_host = launch > before
        kinds = np.where(on_host, 0, np.where(gap < KERNEL_WAIT_NS, 1, 2))
        for kind in range(3):
            self.waits[kind] += gap[kinds == kind].sum()
        self.activities += len(start)
        self.busy += int((end - start).sum())
        self.last_end = int(reached[-1])


class BusyTime:
    """Collects the activities of one device. `feed` must be given them in the order of their starts."""

    def __init__(self, rank: int, device: str) -> None:
        self.rank = rank
        self.device = device
        self._masks = [0] * 8
        self._several = 0
        self._active = np.zeros(3, np.int64)
        self._open = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._begin: int | None = None
        self._now = 0
        self._activities = 0
        self._streams: dict[int, _Stream] = {}

    def feed(
        self, start: np.ndarray, end: np.ndarray, kinds: np.ndarray, stream: np.ndarray, latency: np.ndarray
    ) -> None:
        """A block: ns, classes, streams, and ns since the launch (NaN where that is not known)."""
        if not len(start):
            return
        if self._begin is None:
            self._begin = self._now = int(start[0])
        self._sweep(start, end, kinds, int(start[-1]))
        self._activities += len(start)
        # Without a launch nothing says that the host was waited for.
        launch = np.where(np.isnan(latency), start - (1 << 62), start - np.nan_to_num(latency).astype(np.int64))
        for number in np.unique(stream).tolist():
            mine = stream == number
            self._streams.setdefault(number, _Stream()).feed(start[mine], end[mine], launch[mine])

    def _sweep(self, start: np.ndarray, end: np.ndarray, kinds: np.ndarray, until: int) -> None:
        ends = np.concatenate([self._open[0], end])
        of = np.concatenate([self._open[1], kinds])
        ended = ends <= until
        self._open = ends[~ended], of[~ended]
        times = np.concatenate([start, ends[ended]])
        change = np.zeros((3, len(times)), np.int64)
        change[kinds, np.arange(len(start))] = 1
        change[of[ended], np.arange(len(start), len(times))] = -1
        order = np.argsort(times, kind="stable")
        edges = np.concatenate([[self._now], times[order], [until]])
        counts = np.concatenate([self._active[:, None], self._active[:, None] + np.cumsum(change[:, order], axis=1)], 1)
        length = np.diff(edges)
        mask = (counts > 0).T @ np.array([1, 2, 4])
        for place in range(8):
            self._masks[place] += int(length[mask == place].sum())
        self._several += int(length[counts.sum(axis=0) > 1].sum())
        self._active = counts[:, -1]
        self._now = until

    def result(self) -> DeviceTime:
        """The device's times; nothing can be fed afterwards."""
        if len(self._open[0]):
            nothing = np.zeros(0, np.int64)
            self._sweep(nothing, nothing, nothing, int(self._open[0].max()))
        streams = [
            StreamTime(number, stream.activities, stream.busy, *(int(wait) for wait in stream.waits))
            for number, stream in sorted(self._streams.items())
        ]
        begin = self._begin or 0
        return DeviceTime(
            self.rank, self.device, self._activities, begin, max(self._now, begin), tuple(self._masks), self._several,
            tuple(streams),
        )  # fmt: skip
