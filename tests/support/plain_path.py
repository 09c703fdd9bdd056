"""The critical path in lists, all in memory: what the one in files is held against."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True)
class Activity:
    start: int
    end: int
    launch: int | None
    stream: int
    name: str

    @property
    def launched(self) -> int:
        return self.start if self.launch is None else self.launch


@dataclass(frozen=True)
class StreamWait:
    stream: int
    time: int
    awaited: int | None
    recorded: int


@dataclass(frozen=True)
class HostWait:
    began: int
    ended: int
    known: tuple[int, int] | None
    """The stream that it waited for, and up to when work on it was meant."""


class PlainPath:
    """Activities in the order of their starts, waits in the order of time, of one device."""

    def __init__(
        self, first: int, work: Sequence[Activity], waits: Sequence[StreamWait], syncs: Sequence[HostWait]
    ) -> None:
        self.work = list(work)
        self.waits = list(waits)
        self.syncs = sorted(syncs, key=lambda one: (one.ended, one.began))
        self.streams = list(dict.fromkeys([*(one.stream for one in waits), *(one.stream for one in work)]))
        self.members = {
            stream: [number for number, one in enumerate(self.work) if one.stream == stream] for stream in self.streams
        }
        self.by_end = sorted(range(len(self.work)), key=lambda number: self.work[number].end)
        self.unused = len(self.syncs)
        self.spent = {"device": 0, "queue": 0, "launch": 0, "host": 0, "returning": 0}
        self.names: dict[str, int] = {}
        self.crossings = 0
        self._walk(first)

    def _previous(self, number: int) -> int | None:
        members = self.members[self.work[number].stream]
        at = members.index(number)
        return members[at - 1] if at else None

    def _launched_before(self, stream: int, moment: int) -> int | None:
        members = self.members.get(stream, [])
        at = bisect_left(list(accumulate((self.work[one].launched for one in members), max)), moment)
        return members[at - 1] if at else None

    def _awaited(self, number: int) -> int | None:
        one, before = self.work[number], self._previous(number)
        if one.launch is None:
            return None
        found = None
        for wait in self.waits:
            if wait.stream != one.stream or wait.time > one.launch:
                continue
            if before is not None and wait.time <= self.work[before].launched:
                continue
            for other in self.streams if wait.awaited is None else [wait.awaited]:
                candidate = self._launched_before(other, wait.recorded) if other != one.stream else None
                while wait.awaited is None and candidate is not None and self.work[candidate].end > one.start:
                    candidate = self._previous(candidate)
                if candidate is None or self.work[candidate].end > one.start:
                    continue
                if found is None or (self.work[candidate].end, candidate) > (self.work[found].end, found):
                    found = candidate
        return found

    def _walk(self, first: int) -> None:
        current: int | None = self.by_end[-1]
        now = self.work[self.by_end[-1]].end
        seen: set[int] = set()
        while current is not None and current not in seen:
            seen.add(current)
            one = self.work[current]
            start = min(one.start, now)
            self.spent["device"] += now - start
            self.names[one.name] = self.names.get(one.name, 0) + now - start
            now = start
            before, awaited, crossing = self._previous(current), self._awaited(current), 0
            launch = None if one.launch is None or one.launch > now else one.launch
            later = awaited is not None and (before is None or self.work[awaited].end > self.work[before].end)
            if later and awaited not in seen:
                before, crossing = awaited, 1
            if before is not None and (launch is None or self.work[before].end >= launch):
                reached = min(self.work[before].end, now)
                self.spent["queue"] += now - reached
                self.crossings += crossing
                now, current = reached, before
            elif launch is None:
                break
            else:
                self.spent["launch"] += now - launch
                now, current = self._back_from(launch)
        self.spent["host"] += now - first

    def _back_from(self, launch: int) -> tuple[int, int | None]:
        ended = min(bisect_right([one.ended for one in self.syncs], launch), self.unused)
        for at in reversed(range(ended)):
            wait = self.syncs[at]
            activity = self._waited_for(wait)
            if activity is not None and self.work[activity].end > wait.began:
                reached = self.work[activity].end
                self.spent["host"] += launch - wait.ended
                self.spent["returning"] += wait.ended - reached
                self.unused = at
                return reached, activity
        self.unused = 0
        return launch, None

    def _waited_for(self, wait: HostWait) -> int | None:
        if wait.known is not None:
            found = self._launched_before(*wait.known)
            return found if found is not None and self.work[found].end <= wait.ended else None
        at = bisect_right([self.work[one].end for one in self.by_end], wait.ended) - 1
        return self.by_end[at] if at >= 0 else None
