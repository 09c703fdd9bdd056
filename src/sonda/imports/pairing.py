"""Pairing: beginnings and ends become spans, in one walk through the marks of a rank in the order of time.

An end closes the last beginning of its thread that is still open; one that has a name closes the last of that name,
and what was begun inside it and not ended has no end. Asynchronous ones belong together by their id instead, and may
overlap others of their thread: those of one id are given a lane on which none of another id overlaps them. What has no
partner is counted. Only what is open is remembered.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush

import numpy as np

from sonda.imports.mark_events import ASYNC_BEGIN, ASYNC_END, BEGIN, END
from sonda.imports.raw_event import ABSENT, OP, RAW, Source

LANES = "asynchronous"
"""The process whose threads are the lanes."""


@dataclass(frozen=True)
class _Begun:
    start: int
    name: int
    kind: int
    thread: int


@dataclass
class Pairing:
    """The walk through one rank. `spans` must be given its blocks in the order of time."""

    source: Source
    _nameless: int = field(init=False)
    _open: dict[int, list[_Begun]] = field(default_factory=dict)
    _open_async: dict[int, list[_Begun]] = field(default_factory=dict)
    _lanes: dict[int, int] = field(default_factory=dict)
    _free: list[int] = field(default_factory=list)
    _lane_count: int = 0
    _unended: int = 0
    _unbegun: int = 0

    def __post_init__(self) -> None:
        self._nameless = self.source.names[""]

    def spans(self, marks: np.ndarray) -> np.ndarray:
        """Rows of `RAW` whose ends are in this block, in the order of their ends."""
        found: list[tuple[int, ...]] = []
        columns = (marks[name].tolist() for name in ("start", "name", "thread", "correlation", "kind"))
        for time, name, thread, key, mark in zip(*columns, strict=True):
            if mark == BEGIN:
                self._open.setdefault(thread, []).append(_Begun(time, name, key, thread))
            elif mark == END:
                self._end(self._open.get(thread, []), time, name, found, nested=True)
            elif mark == ASYNC_BEGIN:
                self._open_async.setdefault(key, []).append(_Begun(time, name, OP, self._lane(key)))
            elif mark == ASYNC_END:
                stack = self._open_async.get(key, [])
                self._end(stack, time, name, found, nested=False)
                if not stack and key in self._lanes:
                    heappush(self._free, self._lanes.pop(key))
                    self._open_async.pop(key)
        return np.array(found, dtype=RAW)

    def finish(self) -> None:
        """Count what was never ended."""
        stacks = (*self._open.values(), *self._open_async.values())
        self.source.leave_out("begin and never end", self._unended + sum(len(stack) for stack in stacks))
        self.source.leave_out("end and never began", self._unbegun)

    def _end(self, stack: list[_Begun], time: int, name: int, found: list[tuple[int, ...]], nested: bool) -> None:
        at = len(stack) - 1
        if name != self._nameless:
            while at >= 0 and stack[at].name != name:
                at -= 1
        if at < 0:
            self._unbegun += 1
            return
        begun = stack[at]
        if nested:
            self._unended += len(stack) - at - 1
            del stack[at:]
        else:
            del stack[at]
        if begun.kind >= 0:
            found.append((begun.start, time - begun.start, ABSENT, ABSENT, ABSENT, begun.name, begun.thread, ABSENT,
                          ABSENT, begun.kind))  # fmt: skip

    def _lane(self, key: int) -> int:
        """The thread of an asynchronous event: its own as long as anything with its id is open."""
        if key not in self._lanes:
            if not self._free:
                heappush(self._free, self._lane_count)
                self._lane_count += 1
            self._lanes[key] = heappop(self._free)
        return self.source.places[LANES, -1 - self._lanes[key]]
