"""Linking: which span holds which, found in one walk through the events of a rank in the order of time.

* What runs on a thread of the host lies inside the nearest earlier event of that thread that ends no sooner.
* What no event of its own thread holds, such as autograd's, belongs to the step that is under way.
* What runs on a device belongs to the call that launched it, by correlation id; where the call is not in the trace, to
  the operation with its external id.
* A collective that does not say its group of ranks has that of the operation with its external id.
* A wait belongs to the call that made it, and its name says which stream is waited for, where the trace does.

Only what is still open is remembered from block to block, and the last calls, of which a device has about a thousand
in its queue.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sonda.imports.trace.raw_events import (
    ABSENT,
    CALL,
    COLLECTIVE,
    FIRST_ON_DEVICE,
    KIND_CODES,
    KIND_WORDS,
    STEP,
    WAIT,
    unpack_groups,
)
from sonda.record.spans import Spans, Words

REMEMBERED = 1 << 17
"""Calls and operations that later activities of a device can be launched by."""
STREAM_WAIT = "Stream Wait Event"
"""Kineto's name of a stream's wait for an event."""
LATENCY, SIZE, AGE = "launch_latency:measured", "bytes:counted", "event_age:measured"
NUMBER = "sequence:counted"


@dataclass
class _LaunchMemory:
    """Numbers that may be asked for again, with row, start, thread and group of what bore them; the newest wins."""

    keys: np.ndarray
    rows: np.ndarray
    starts: np.ndarray
    threads: np.ndarray
    groups: np.ndarray

    @classmethod
    def empty(cls) -> _LaunchMemory:
        return cls(*(np.zeros(0, np.int64) for _ in range(5)))

    def add(self, keys: np.ndarray, numbers: np.ndarray, rows: np.ndarray) -> None:
        """`numbers` are the rows in the run of these rows."""
        self.keys = np.concatenate([self.keys, keys])
        self.rows = np.concatenate([self.rows, numbers])
        self.starts = np.concatenate([self.starts, rows["start"]])
        self.threads = np.concatenate([self.threads, rows["thread"]])
        self.groups = np.concatenate([self.groups, rows["bytes"]])

    def forget(self) -> None:
        self.keys, self.rows, self.starts, self.threads, self.groups = (
            column[-REMEMBERED:].copy() for column in (self.keys, self.rows, self.starts, self.threads, self.groups)
        )

    def find(self, wanted: np.ndarray) -> np.ndarray:
        """Places of these numbers, -1 where nothing bore one."""
        if not len(self.keys) or not len(wanted):
            return np.full(len(wanted), -1, dtype=np.int64)
        order = np.argsort(self.keys, kind="stable")
        ordered = self.keys[order]
        at = np.searchsorted(ordered, wanted, "right") - 1
        return np.where((at >= 0) & (ordered[at] == wanted), order[at], -1)


class Linker:
    """Links the events of one rank. Give `link` its blocks in the order of time."""

    def __init__(self, rank: int, first_row: int, origin: int, names: list[str], threads: list[int]) -> None:
        """`first_row` is the row of the first span, `origin` the moment in ns that becomes 0."""
        self._rank = rank
        self._row = first_row
        self._origin = origin
        self._names = names
        self._threads = np.array(threads or [0], dtype=np.int64)
        self._awaited: dict[tuple[int, int], int] = {}
        self._open: tuple[np.ndarray, np.ndarray] | None = None
        self._steps: tuple[np.ndarray, np.ndarray, np.ndarray] = (np.zeros(0, np.int64),) * 3
        self._calls = _LaunchMemory.empty()
        self._operations = _LaunchMemory.empty()
        self.overlapping = 0
        """Events of the host that end after one that began before them."""
        self.without_launch = 0
        """Activities of a device whose launch is not in the trace."""
        self.before_launch = 0
        """Activities of a device that begin before the call that launched them."""
        self.on_device = 0
        self.without_device = 0
        """Activities that do not say on which device they ran, or say one that cannot be."""
        self.waits_for_unknown = 0
        """Waits of streams that do not say for which."""

    def link(self, rows: np.ndarray) -> Spans:
        """The next block of raw events as linked spans."""
        numbers = self._row + np.arange(len(rows), dtype=np.int64)
        self._row += len(rows)
        parent = np.full(len(rows), -1, dtype=np.int64)
        latency, age = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
        on_device = rows["kind"] >= FIRST_ON_DEVICE
        waits = rows["kind"] == WAIT
        host = np.flatnonzero(~on_device & ~waits)
        parent[host] = self._nest(rows[host], numbers[host])
        self._link_to_steps(rows, numbers, parent, host)
        self._link_launches(rows, numbers, parent, latency, np.flatnonzero(on_device), host)
        rows = self._inherit_groups(rows, np.flatnonzero(rows["kind"] == COLLECTIVE))
        if waits.any():
            rows = self._link_waits(rows.copy(), parent, age, np.flatnonzero(waits))
        self._calls.forget()
        self._operations.forget()
        metrics = {LATENCY: latency, SIZE: _sizes(rows), AGE: age, NUMBER: _numbers(rows)}
        return self._table(rows, numbers, parent, on_device, metrics)

    def _nest(self, rows: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """For every event of the host the row of the event around it on its thread, or -1."""
        carried = 0
        if self._open is not None:
            carried = len(self._open[0])
            rows, numbers = np.concatenate([self._open[0], rows]), np.concatenate([self._open[1], numbers])
        start, end, thread = rows["start"], rows["start"] + rows["duration"], rows["thread"]
        order = np.lexsort((numbers, -end, start, thread))
        start, end, thread, sorted_numbers = start[order], end[order], thread[order], numbers[order]
        around = np.arange(-1, len(order) - 1, dtype=np.int64)
        if len(order):
            around[1:][thread[1:] != thread[:-1]] = -1
            around[0] = -1
        overlaps = np.zeros(len(order), dtype=bool)
        # Everything between an event and `around` ends before the event does. So where `around` ends too early as
        # well, what stands around it is the next to ask, and steps double with every turn.
        asking = np.flatnonzero(around >= 0)
        while len(asking):
            asking = asking[end[around[asking]] < end[asking]]
            overlaps[asking] |= end[around[asking]] > start[asking]
            around[asking] = around[around[asking]]
            asking = asking[around[asking] >= 0]
        parents = np.full(len(order), -1, dtype=np.int64)
        parents[order] = np.where(around >= 0, sorted_numbers[np.maximum(around, 0)], -1)
        fresh = np.ones(len(order), dtype=bool)
        fresh[order] = overlaps
        self.overlapping += int(fresh[carried:].sum())
        if len(rows):
            still = rows["start"] + rows["duration"] > rows["start"].max()
            self._open = rows[still].copy(), numbers[still].copy()
        return parents[carried:]

    def _link_to_steps(self, rows: np.ndarray, numbers: np.ndarray, parent: np.ndarray, host: np.ndarray) -> None:
        steps = np.flatnonzero(rows["kind"] == STEP)
        begin, end, number = self._steps
        begin = np.concatenate([begin, rows["start"][steps]])
        end = np.concatenate([end, rows["start"][steps] + rows["duration"][steps]])
        number = np.concatenate([number, numbers[steps]])
        if not len(begin):
            return
        loose = host[(parent[host] < 0) & (rows["kind"][host] != STEP)]
        start = rows["start"][loose]
        at = np.searchsorted(begin, start, "right") - 1
        inside = (at >= 0) & (start < end[np.maximum(at, 0)])
        # What begins with a step and lasts longer stands around it.
        inside &= numbers[loose] > number[np.maximum(at, 0)]
        parent[loose[inside]] = number[at[inside]]
        still = end > (rows["start"][-1] if len(rows) else 0)
        self._steps = begin[still], end[still], number[still]

    def _link_launches(
        self,
        rows: np.ndarray,
        numbers: np.ndarray,
        parent: np.ndarray,
        latency: np.ndarray,
        device: np.ndarray,
        host: np.ndarray,
    ) -> None:
        is_call = rows["kind"][host] == CALL
        calls = host[is_call & (rows["correlation"][host] >= 0)]
        operations = host[~is_call & (rows["external"][host] > 0)]
        self._calls.add(rows["correlation"][calls], numbers[calls], rows[calls])
        self._operations.add(rows["external"][operations], numbers[operations], rows[operations])
        at = self._calls.find(rows["correlation"][device])
        known = (at >= 0) & (rows["correlation"][device] >= 0)
        launched = device[known]
        parent[launched] = self._calls.rows[at[known]]
        latency[launched] = rows["start"][launched] - self._calls.starts[at[known]]
        rest = device[~known]
        at = self._operations.find(rows["external"][rest])
        by_operation = (at >= 0) & (rows["external"][rest] > 0)
        parent[rest[by_operation]] = self._operations.rows[at[by_operation]]
        self.on_device += len(device)
        self.without_device += int((rows["device"][device] < 0).sum())
        self.without_launch += len(rest)
        self.before_launch += int((latency[launched] < 0).sum())

    def _inherit_groups(self, rows: np.ndarray, collectives: np.ndarray) -> np.ndarray:
        """The rows, in which a collective says its group where its operation does."""
        silent = collectives[(rows["bytes"][collectives] >= ABSENT) & (rows["external"][collectives] > 0)]
        at = self._operations.find(rows["external"][silent])
        grouped = np.flatnonzero(at >= 0)
        grouped = grouped[self._operations.groups[at[grouped]] < ABSENT]
        if not len(grouped):
            return rows
        rows = rows.copy()
        rows["bytes"][silent[grouped]] = self._operations.groups[at[grouped]]
        return rows

    def _link_waits(self, rows: np.ndarray, parent: np.ndarray, age: np.ndarray, waits: np.ndarray) -> np.ndarray:
        """The rows with waits named, under their calls and on the threads of these; `age` learns when what they wait
        for was recorded."""
        mine = rows[waits]
        at = self._calls.find(mine["correlation"])
        known = (at >= 0) & (mine["correlation"] >= 0)
        parent[waits[known]] = self._calls.rows[at[known]]
        rows["thread"][waits[known]] = self._calls.threads[at[known]]
        at = self._calls.find(mine["external"])
        known = (at >= 0) & (mine["external"] >= 0)
        age[waits[known]] = mine["start"][known] - self._calls.starts[at[known]]
        for row, name, awaited in zip(waits.tolist(), mine["name"].tolist(), mine["bytes"].tolist(), strict=True):
            if awaited >= 0:
                rows["name"][row] = self._awaited.setdefault((name, awaited), len(self._names))
                if rows["name"][row] == len(self._names):
                    self._names.append(f"{self._names[name]} for stream {awaited}")
            elif rows["stream"][row] >= 0 and self._names[name] == STREAM_WAIT:
                self.waits_for_unknown += 1
        return rows

    def _table(
        self, rows: np.ndarray, numbers: np.ndarray, parent: np.ndarray, on_device: np.ndarray,
        metrics: dict[str, np.ndarray],
    ) -> Spans:  # fmt: skip
        length = len(rows)
        somewhere = on_device | (rows["kind"] == WAIT)
        devices, places = np.unique(np.where(somewhere, np.maximum(rows["device"], 0), -1), return_inverse=True)
        used, codes = np.unique(rows["name"], return_inverse=True)
        names = Words(codes.astype(np.int32), tuple(self._names[code] for code in used.tolist()) or ("",))
        return Spans(
            {
                "id": numbers,
                "parent": parent,
                "rank": np.full(length, self._rank, dtype=np.int32),
                "thread": np.where(on_device, 0, self._threads[rows["thread"]]),
                "stream": np.where(somewhere, rows["stream"], 0),
                "start": rows["start"] - self._origin,
                "duration": rows["duration"],
            },
            {
                "kind": Words(KIND_CODES[rows["kind"]], KIND_WORDS),
                "name": names,
                "device": Words(
                    places.astype(np.int32),
                    tuple("cpu" if number < 0 else f"cuda:{number}" for number in devices.tolist()) or ("cpu",),
                ),
                "clock": Words(on_device.astype(np.int32), ("host", "device")),
                "path": self._labels(rows),
            },
            metrics,
        )

    def _labels(self, rows: np.ndarray) -> Words:
        """The groups of collectives, as `rank_group` writes them."""
        labels = np.where(rows["kind"] == COLLECTIVE, unpack_groups(rows["bytes"])[0], -1)
        used, codes = np.unique(labels, return_inverse=True)
        words = tuple(self._names[code] if code >= 0 else "" for code in used.tolist())
        return Words(codes.astype(np.int32), words or ("",))


def _numbers(rows: np.ndarray) -> np.ndarray:
    """Of collectives: which of their group's they are."""
    numbers = unpack_groups(rows["bytes"])[1]
    return np.where((numbers >= 0) & (rows["kind"] == COLLECTIVE), numbers, np.nan)


def _sizes(rows: np.ndarray) -> np.ndarray:
    size = rows["bytes"].astype(np.float64)
    size[(rows["bytes"] < 0) | (rows["kind"] == WAIT)] = np.nan
    return size
