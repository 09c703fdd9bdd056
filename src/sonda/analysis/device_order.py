"""The activities of one rank's devices, what was launched when, and who waited for whom: what a critical path needs."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np

from sonda.analysis.kernels import LATENCY, ON_DEVICE
from sonda.record.run import Run
from sonda.record.span import Spans, Words
from sonda.record.span_file import read_blocks

VERSION = r"(?:_v\d+)?(?:_pts[dz])?"
"""What Nsight Systems adds to the names of calls."""
SYNCHRONISING = re.compile(
    rf"(?:(?:cuda|cu|hip)(?:Device|Stream|Event|Ctx)Synchronize|(?:cuda|hip)Memcpy|cuMemcpy\w+toH){VERSION}"
)
STREAM_WAITING = re.compile(rf"(?:cuda|cu|hip)StreamWaitEvent{VERSION}")
WAIT = re.compile(r"(Stream Wait Event|Stream Sync|Event Sync)(?: for stream (\d+))?")
"""What Kineto and CUPTI call waits; the importer adds the stream that is waited for."""
AGE = "event_age:measured"
MOST = 500_000
"""Activities that are held, the last ones; each takes about 300 bytes."""

Place = tuple[str, int]
"""A device and one of its streams."""


@dataclass(frozen=True)
class StreamWait:
    """A call that made a stream wait."""

    time: int
    awaited: Place | None
    """None where the trace does not say."""
    recorded: int
    """When the event that is waited for was recorded; the call's own time where the trace does not say."""


@dataclass(frozen=True)
class HostWait:
    """A call in which the host waited for a device. Sorts by its end."""

    ended: int
    began: int
    row: int


@dataclass
class Stream:
    """The activities of one stream in the order of their starts, as places in `DeviceOrder`."""

    members: list[int] = field(default_factory=list)
    launches: list[int] = field(default_factory=list)
    """When the latest of the activities so far was launched; of those without a launch, when they began."""
    waits: list[StreamWait] = field(default_factory=list)
    """In the order of time."""

    def launched_before(self, moment: int) -> int | None:
        """The last activity that was launched before a moment."""
        at = bisect_left(self.launches, moment)
        return self.members[at - 1] if at else None


@dataclass
class DeviceOrder:
    """Activities of one rank in the order of their starts, ns."""

    first: int = 0
    """The beginning of the first event of all; where activities were forgotten, the end of the last of them."""
    forgotten: int = 0
    """Activities before those that are held."""
    start: list[int] = field(default_factory=list)
    end: list[int] = field(default_factory=list)
    launch: list[int | None] = field(default_factory=list)
    place: list[Place] = field(default_factory=list)
    name: list[str] = field(default_factory=list)
    previous: list[int | None] = field(default_factory=list)
    """The activity before each on its stream."""
    streams: dict[Place, Stream] = field(default_factory=dict)
    waits: list[HostWait] = field(default_factory=list)
    waits_for: dict[int, tuple[Place, int]] = field(default_factory=dict)
    """Of calls, by row, the stream that the host waited for, and up to when work on it was meant."""
    calls_of_stream_waits: int = 0
    told_stream_waits: int = 0
    """Of which the trace says at least which stream waits."""

    def awaited(self, activity: int) -> int | None:
        """The activity of another stream that ended last of those that this one had to wait for; None where there is
        none, or none that had ended by then."""
        place, launch = self.place[activity], self.launch[activity]
        if launch is None:
            return None
        stream, before = self.streams[place], self.previous[activity]
        since = -1 if before is None else bisect_right(stream.waits, self._launched(before), key=lambda one: one.time)
        found = None
        for wait in stream.waits[max(since, 0) : bisect_right(stream.waits, launch, key=lambda one: one.time)]:
            for other in self._others(place) if wait.awaited is None else [wait.awaited]:
                candidate = self.streams[other].launched_before(wait.recorded) if other in self.streams else None
                # Where the event is not known, it was recorded before the wait: work launched since may still run.
                while wait.awaited is None and candidate is not None and self.end[candidate] > self.start[activity]:
                    candidate = self.previous[candidate]
                if candidate is None or other == place or self.end[candidate] > self.start[activity]:
                    continue
                if found is None or self.end[candidate] > self.end[found]:
                    found = candidate
        return found

    def _others(self, place: Place) -> list[Place]:
        return [other for other in self.streams if other[0] == place[0] and other != place]

    def _launched(self, activity: int) -> int:
        launch = self.launch[activity]
        return self.start[activity] if launch is None else launch

    def forget(self) -> None:
        """Hold the last `MOST` activities only. What is before the end of the others can no longer be told."""
        before = len(self.start) - MOST
        if before <= 0:
            return
        self.first = max(self.end[:before] + ([self.first] if self.forgotten else []))
        for column in (self.start, self.end, self.launch, self.place, self.name):
            del column[:before]
        self.forgotten += before
        self.waits = [wait for wait in self.waits if wait.ended >= self.first]
        rows = {wait.row for wait in self.waits}
        self.waits_for = {row: waited for row, waited in self.waits_for.items() if row in rows}
        oldest = min(map(self._launched, range(MOST)))
        for stream in self.streams.values():
            stream.waits = [wait for wait in stream.waits if wait.time >= oldest]

    def arrange(self) -> None:
        """Fill what follows from the activities, when all are there."""
        for number, place in enumerate(self.place):
            stream = self.streams.setdefault(place, Stream())
            self.previous.append(stream.members[-1] if stream.members else None)
            stream.members.append(number)
        for stream in self.streams.values():
            stream.launches = list(accumulate((self._launched(number) for number in stream.members), max))
            stream.waits.sort(key=lambda one: one.time)
        self.waits.sort(key=lambda one: (one.ended, one.began))


def device_order(run: Run, rank: int) -> DeviceOrder | None:
    """Of one rank of an imported trace, the last `MOST` of its activities; None where it has none, or where one before
    them ends last."""
    found = DeviceOrder()
    first: int | None = None
    row = 0
    for spans in read_blocks(run, ("stream", "rank", "device", LATENCY, AGE)):
        mine = spans.number("rank") == rank
        if mine.any():
            lowest = int(spans.number("start")[mine].min())
            first = lowest if first is None else min(first, lowest)
            active = np.zeros(len(spans), dtype=bool)
            for kind in ON_DEVICE:
                active |= spans.words("kind").equal(kind)
            rows = np.flatnonzero(mine & active)
            _add_activities(found, spans, rows)
            _add_waits(found, spans, np.flatnonzero(mine & ~active), row)
            if len(found.start) > MOST + MOST // 4:
                found.forget()
        row += len(spans)
    if not found.start or first is None:
        return None
    found.forget()
    if not found.forgotten:
        found.first = first
    elif found.first >= max(found.end):
        return None
    found.arrange()
    return found


def _add_activities(found: DeviceOrder, spans: Spans, rows: np.ndarray) -> None:
    start, latency = spans.number("start")[rows], spans.metric("launch_latency", "measured")[rows]
    found.start += start.tolist()
    found.end += (start + spans.number("duration")[rows]).tolist()
    found.launch += [
        None if late != late else begin - int(late)
        for begin, late in zip(start.tolist(), latency.tolist(), strict=True)
    ]
    found.place += _places(spans, rows)
    name = spans.words("name")
    found.name += [name.words[code] for code in name.codes[rows].tolist()]


def _places(spans: Spans, rows: np.ndarray) -> list[Place]:
    device = spans.words("device")
    numbers = spans.number("stream")[rows].tolist()
    return [(device.words[code], number) for code, number in zip(device.codes[rows].tolist(), numbers, strict=True)]


def _add_waits(found: DeviceOrder, spans: Spans, host: np.ndarray, first_row: int) -> None:
    """`host` are the rows that are no activities, `first_row` the row of the first of these spans in the run."""
    name = spans.words("name")
    start, end = spans.number("start"), spans.number("start") + spans.number("duration")
    for row in host[_named(name, SYNCHRONISING)[host]].tolist():
        found.waits.append(HostWait(int(end[row]), int(start[row]), first_row + row))
    found.calls_of_stream_waits += int(_named(name, STREAM_WAITING)[host].sum())
    rows = host[_named(name, WAIT)[host]]
    age = spans.metric("event_age", "measured")[rows].tolist()
    for row, place, old in zip(rows.tolist(), _places(spans, rows), age, strict=True):
        known = WAIT.fullmatch(name.words[name.codes[row]])
        assert known is not None
        time = int(start[row])
        awaited = None if known[2] is None else (place[0], int(known[2]))
        recorded = time if old != old else time - int(old)
        if known[1] == "Stream Wait Event":
            found.told_stream_waits += 1
            found.streams.setdefault(place, Stream()).waits.append(StreamWait(time, awaited, recorded))
        elif known[1] == "Stream Sync" and place[1] >= 0:
            found.waits_for[int(spans.number("parent")[row])] = (place, time)
        elif awaited is not None:
            found.waits_for[int(spans.number("parent")[row])] = (awaited, recorded)


def _named(name: Words, pattern: re.Pattern[str]) -> np.ndarray:
    return np.array([pattern.fullmatch(word) is not None for word in name.words], dtype=bool)[name.codes]
