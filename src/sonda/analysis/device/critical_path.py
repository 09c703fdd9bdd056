"""The critical path of a device's work: what would have had to be shorter for the whole to end earlier.

It is walked backwards from the end of the last activity. Before an activity stands what ended last of three: the one
before it on its stream; what its stream was made to wait for on another stream; its launch. Before a launch stands the
host, back to the last call that waited for the device, on any thread, and before that call's end the activity it waited
for. The parts add up to the time from the first event to that end.

What streams wait for is in traces that were recorded with events of synchronisation (torch.profiler's
`enable_cuda_sync_events`, Nsight Systems). Those of CUDA 13 say which stream waits and not for what; then it is the
activity launched before on another stream that ended last before the waiting one began. Without such events waits
between streams are not seen, and `unseen` says how many there are.

The activities of a rank's devices, their launches and their waits lie in temporary files, so memory does not grow with
the trace.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from sonda.analysis.device.kernels import LATENCY, on_device
from sonda.record.files.rows import RowFile, SortedRows
from sonda.record.files.tables import read_blocks
from sonda.record.run import Run
from sonda.record.spans import Spans, Words

VERSION = r"(?:_v\d+)?(?:_pts[dz])?"
"""What Nsight Systems adds to the names of calls."""
SYNCHRONISING = re.compile(
    rf"(?:(?:cuda|cu|hip)(?:Device|Stream|Event|Ctx)Synchronize|(?:cuda|hip)Memcpy|cuMemcpy\w+toH){VERSION}"
)
STREAM_WAITING = re.compile(rf"(?:cuda|cu|hip)StreamWaitEvent{VERSION}")
WAIT = re.compile(r"(Stream Wait Event|Stream Sync|Event Sync)(?: for stream (\d+))?")
"""What Kineto and CUPTI call waits; the importer adds the stream that is waited for."""
AGE = "event_age:measured"
COLUMNS = ("stream", "rank", "device", LATENCY, AGE)
"""Of spans, beside those that all have."""
UNKNOWN = -(1 << 63)
"""A launch, or a stream, that the trace does not tell."""

Place = tuple[str, int]
"""A device and one of its streams."""


def _shape(*columns: str) -> np.dtype:
    return np.dtype([(name, np.int64) for name in columns])


ACTIVITY = _shape("start", "end", "launch", "place", "name", "previous")
"""Times in ns; `place` and `name` are numbers, `previous` is the activity before it on its stream, or -1."""
ENDING = _shape("end", "activity")
LAUNCHED = _shape("place", "latest", "activity")
"""`latest` is when the latest of the stream's activities so far was launched; of those without a launch, when they
began. So it never falls along a stream."""
STREAM_WAIT = _shape("place", "time", "arrival", "awaited", "recorded")
"""A call that made a stream wait, for what was recorded on another until a moment: the call's own time where the trace
does not say."""
HOST_WAIT = _shape("ended", "began", "row")
"""A call in which the host waited for a device."""
WAITED_FOR = _shape("row", "arrival", "place", "moment")
"""The stream that the host waited for in a call, and up to when work on it was meant."""


class DeviceOrder:
    """Activities of one rank, each known by its place in the order of their starts. To be closed."""

    def __init__(self, run_rows: int | None = None, in_memory: int | None = None) -> None:
        """The arguments say from which size on rows are sorted, and kept, outside memory."""
        self.first: int | None = None
        """The beginning of the first event of all, ns."""
        self.names: dict[str, int] = {}
        self.calls_of_stream_waits = 0
        self.told_stream_waits = 0
        """Of which the trace says at least which stream waits."""
        self._in_memory = in_memory
        self._stack = ExitStack()
        self.activities = self._stack.enter_context(RowFile(ACTIVITY, in_memory))
        self._places: dict[Place, int] = {}
        self._waiting: dict[int, None] = {}
        self._active: dict[int, tuple[int, int]] = {}
        """Of every stream its last activity, and the latest launch so far."""
        self._others: dict[int, list[int]] = {}
        self._arrivals = 0
        self._unsorted = {
            name: self._stack.enter_context(SortedRows(shape, keys, run_rows, in_memory))
            for name, shape, keys in (
                ("ending", ENDING, ("end", "activity")), ("launched", LAUNCHED, ("place", "latest", "activity")),
                ("stream_waits", STREAM_WAIT, ("place", "time", "arrival")),
                ("host_waits", HOST_WAIT, ("ended", "began", "row")), ("waited_for", WAITED_FOR, ("row", "arrival")),
            )
        }  # fmt: skip

    def __enter__(self) -> DeviceOrder:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def read(self, blocks: Iterable[Spans], rank: int, row: int = 0) -> int:
        """Take the spans of one rank out of those of a run, which are in the order of time; then it can be asked.

        `row` is the first one's in the run; returns the row behind the last.
        """
        for spans in blocks:
            mine = spans.number("rank") == rank
            if mine.any():
                lowest = int(spans.number("start")[mine].min())
                self.first = lowest if self.first is None else min(self.first, lowest)
                active = np.zeros(len(spans), dtype=bool)
                active[on_device(spans)] = True
                self._add_activities(spans, np.flatnonzero(mine & active))
                self._add_waits(spans, np.flatnonzero(mine & ~active), row)
            row += len(spans)
        self.ending = self._arranged("ending")
        self._launched = self._arranged("launched")
        self._stream_waits = self._arranged("stream_waits")
        self.host_waits = self._arranged("host_waits")
        self._waited_for = self._arranged("waited_for")
        return row

    def _arranged(self, name: str) -> RowFile:
        with self._unsorted.pop(name) as rows:
            file = self._stack.enter_context(RowFile(rows.shape, self._in_memory))
            for block in rows.blocks():
                file.append(block)
        return file

    def launched_before(self, place: int, moment: int) -> int | None:
        """The last activity of a stream that was launched before a moment."""
        at = bisect_left(self._launched, (place, moment), key=lambda row: row[:2])
        before = self._launched[at - 1] if at else None
        return before[2] if before is not None and before[0] == place else None

    def ended_by(self, moment: int) -> int | None:
        """The activity that ended last, up to a moment."""
        at = bisect_right(self.ending, moment, key=lambda row: row[0])
        return self.ending[at - 1][1] if at else None

    def waited_for(self, row: int) -> tuple[int, int] | None:
        """The stream that the host waited for in a call, and up to when; None where the trace does not say."""
        at = bisect_right(self._waited_for, row, key=lambda wait: wait[0])
        wait = self._waited_for[at - 1] if at else None
        return (wait[2], wait[3]) if wait is not None and wait[0] == row else None

    def awaited(self, activity: int) -> int | None:
        """The activity of another stream that ended last of those that this one had to wait for; None where there is
        none, or none that had ended by then."""
        start, _, launch, place, _, before = self.activities[activity]
        if launch == UNKNOWN or place not in self._waiting:
            return None
        since = self._launch_of(before) if before >= 0 else UNKNOWN
        awaited_row, latest = None, 0
        for awaited, recorded in self._waits(place, since, launch):
            for stream in self._others_of(place) if awaited == UNKNOWN else [awaited]:
                candidate = self.launched_before(stream, recorded)
                # Where the event is not known, it was recorded before the wait: work launched since may still run.
                while awaited == UNKNOWN and candidate is not None and self.activities[candidate][1] > start:
                    before = self.activities[candidate][5]
                    candidate = before if before >= 0 else None
                if candidate is None or stream == place or self.activities[candidate][1] > start:
                    continue
                # Of two that end at once the one that is later in the file, wherever its blocks end.
                if awaited_row is None or (self.activities[candidate][1], candidate) > (latest, awaited_row):
                    awaited_row, latest = candidate, self.activities[candidate][1]
        return awaited_row

    def _waits(self, place: int, since: int, until: int) -> Iterator[tuple[int, int]]:
        """What a stream was made to wait for after one moment and up to another."""
        at = bisect_right(self._stream_waits, (place, since), key=lambda row: row[:2])
        while at < len(self._stream_waits):
            mine, time, _, awaited, recorded = self._stream_waits[at]
            if (mine, time) > (place, until):
                return
            yield awaited, recorded
            at += 1

    def _others_of(self, place: int) -> list[int]:
        """The other streams of its device."""
        if place not in self._others:
            devices = [device for device, _ in self._places]
            every = {*self._waiting, *self._active}
            self._others[place] = [
                stream for stream in sorted(every) if stream != place and devices[stream] == devices[place]
            ]
        return self._others[place]

    def _launch_of(self, activity: int) -> int:
        start, _, launch, *_ = self.activities[activity]
        return int(start if launch == UNKNOWN else launch)

    def _add_activities(self, spans: Spans, rows: np.ndarray) -> None:
        if not len(rows):
            return
        start, latency = spans.number("start")[rows], spans.metric("launch_latency", "measured")[rows]
        known = ~np.isnan(latency)
        activities = np.zeros(len(rows), dtype=ACTIVITY)
        activities["start"], activities["end"] = start, start + spans.number("duration")[rows]
        activities["launch"] = np.where(known, start - np.where(known, latency, 0).astype(np.int64), UNKNOWN)
        activities["place"] = self._codes(spans, rows)
        name = spans.words("name")
        codes = np.array([self.names.setdefault(word, len(self.names)) for word in name.words], dtype=np.int64)
        activities["name"] = codes[name.codes[rows]]
        number = len(self.activities) + np.arange(len(rows))
        self._along_streams(activities, number)
        self.activities.append(activities)
        self._unsorted["ending"].add(_rows(ENDING, activities["end"], number))

    def _along_streams(self, activities: np.ndarray, number: np.ndarray) -> None:
        """Fill who was before whom, stream by stream."""
        order = np.argsort(activities["place"], kind="stable")
        place = activities["place"][order]
        launch = np.where(activities["launch"] == UNKNOWN, activities["start"], activities["launch"])[order]
        previous = np.concatenate(([-1], number[order][:-1]))
        edges = np.flatnonzero(np.diff(place)) + 1
        for first, stop in zip([0, *edges.tolist()], [*edges.tolist(), len(place)], strict=True):
            before, latest = self._active.get(int(place[first]), (-1, UNKNOWN))
            previous[first] = before
            launch[first] = max(launch[first], latest)
            np.maximum.accumulate(launch[first:stop], out=launch[first:stop])
            self._active[int(place[first])] = (int(number[order[stop - 1]]), int(launch[stop - 1]))
        activities["previous"][order] = previous
        self._unsorted["launched"].add(_rows(LAUNCHED, place, launch, number[order]))

    def _codes(self, spans: Spans, rows: np.ndarray) -> np.ndarray:
        """The streams of spans as numbers."""
        device, stream = spans.words("device"), spans.number("stream")[rows].astype(np.int64)
        both, first, inverse = np.unique(
            device.codes[rows].astype(np.int64) << 32 | (stream + (1 << 31)), return_index=True, return_inverse=True
        )
        codes = np.zeros(len(both), dtype=np.int64)
        for at in np.argsort(first).tolist():
            place = (device.words[int(both[at]) >> 32], int(stream[first[at]]))
            codes[at] = self._places.setdefault(place, len(self._places))
        numbers: np.ndarray = codes[inverse]
        return numbers

    def _add_waits(self, spans: Spans, host: np.ndarray, first_row: int) -> None:
        """`host` are the rows that are no activities, `first_row` the row of the first of these spans in the run."""
        name = spans.words("name")
        start, end = spans.number("start"), spans.number("start") + spans.number("duration")
        calls = host[_stream_names(name, SYNCHRONISING)[host]]
        self._unsorted["host_waits"].add(_rows(HOST_WAIT, end[calls], start[calls], first_row + calls))
        self.calls_of_stream_waits += int(_stream_names(name, STREAM_WAITING)[host].sum())
        rows = host[_stream_names(name, WAIT)[host]]
        age = spans.metric("event_age", "measured")[rows].tolist()
        device, parent, stream = spans.words("device"), spans.number("parent"), spans.number("stream")
        stream_waits, waited_for = [], []
        for row, code, old in zip(rows.tolist(), self._codes(spans, rows).tolist(), age, strict=True):
            known = WAIT.fullmatch(name.words[name.codes[row]])
            assert known is not None
            time = int(start[row])
            awaited = UNKNOWN
            if known[2] is not None:
                place = (device.words[device.codes[row]], int(known[2]))
                awaited = self._places.setdefault(place, len(self._places))
            recorded = time if old != old else time - int(old)
            self._arrivals += 1
            if known[1] == "Stream Wait Event":
                self.told_stream_waits += 1
                self._waiting[code] = None
                stream_waits.append((code, time, self._arrivals, awaited, recorded))
            elif known[1] == "Stream Sync" and stream[row] >= 0:
                waited_for.append((int(parent[row]), self._arrivals, code, time))
            elif awaited != UNKNOWN:
                waited_for.append((int(parent[row]), self._arrivals, awaited, recorded))
        self._unsorted["stream_waits"].add(np.array(stream_waits, dtype=STREAM_WAIT))
        self._unsorted["waited_for"].add(np.array(waited_for, dtype=WAITED_FOR))


def _rows(shape: np.dtype, *columns: Any) -> np.ndarray:
    table = np.zeros(len(columns[0]), dtype=shape)
    for name, column in zip(shape.names or (), columns, strict=True):
        table[name] = column
    return table


def _stream_names(name: Words, pattern: re.Pattern[str]) -> np.ndarray:
    matching: np.ndarray = np.array([pattern.fullmatch(word) is not None for word in name.words], dtype=bool)[
        name.codes
    ]
    return matching


# ---- Walking the path -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CriticalPath:
    """ns on the path of one rank by what they were spent on."""

    rank: int
    total: int
    device: int
    """Activities running."""
    queue: int
    """Between an activity and the next, already launched, of its stream or of one that waited for it."""
    launch: int
    """From a launch's beginning to the activity's."""
    host: int
    """The host between what it waited for and the launch."""
    returning: int
    """From the end of an activity to the end of the call that waited for it."""
    names: dict[str, int]
    """ns of activities by name, longest first."""
    crossings: int = 0
    """How often the path goes from one stream to another that it was waited for by."""
    unseen: int = 0
    """Calls that make a stream wait, of which the trace does not say which."""


def critical_path(run: Run, rank: int = 0) -> CriticalPath | None:
    """Of one rank of an imported trace; None where it has no activity of a device."""
    with DeviceOrder() as order:
        order.read(read_blocks(run, COLUMNS), rank)
        return walk_path(order, rank)


def critical_paths(run: Run, ranks: Sequence[int]) -> list[CriticalPath]:
    """Of these ranks of an imported trace, of each that has an activity of a device. Where the spans of every rank
    stand together, as an importer writes them, the run is read once."""
    by_rank: dict[int, CriticalPath | None] = {}
    row = 0
    for rank, blocks in groupby(read_blocks(run, COLUMNS), key=_only_rank):
        if rank is None or rank in by_rank:
            by_rank = {rank: critical_path(run, rank) for rank in ranks}
            break
        with DeviceOrder() as order:
            row = order.read(blocks, rank, row)
            by_rank[rank] = walk_path(order, rank)
    paths = [by_rank.get(rank) for rank in ranks]
    return [path for path in paths if path is not None]


def _only_rank(spans: Spans) -> int | None:
    """The rank of all spans of a block; None where there are several."""
    ranks = spans.number("rank")
    return int(ranks[0]) if len(ranks) and (ranks == ranks[0]).all() else None


def walk_path(order: DeviceOrder, rank: int) -> CriticalPath | None:
    """The path through activities that were read."""
    if not len(order.activities) or order.first is None:
        return None
    now, last = order.ending[len(order.ending) - 1]
    current: int | None = last
    total = now - order.first
    spent = {"device": 0, "queue": 0, "launch": 0, "host": 0, "returning": 0}
    names: dict[int, int] = {}
    host = _Host(order)
    seen: set[int] = set()
    began = now
    crossings = 0
    while current is not None and current not in seen:
        begin, _, launch, _, name, before = order.activities[current]
        # The path never comes to an activity that begins later, so only those that begin together can come again.
        if begin < began:
            seen.clear()
        seen.add(current)
        began, start = begin, min(begin, now)
        spent["device"] += now - start
        names[name] = names.get(name, 0) + now - start
        now = start
        awaited = order.awaited(current)
        if launch == UNKNOWN or launch > now:
            launch = None  # not known, or a clock that disagrees: only streams are left to ask
        ended = order.activities[before][1] if before >= 0 else None
        crossing = 0
        if awaited is not None and awaited not in seen:
            reached = order.activities[awaited][1]
            if ended is None or reached > ended:
                before, ended, crossing = awaited, reached, 1
        if ended is not None and (launch is None or ended >= launch):
            reached = min(ended, now)
            spent["queue"] += now - reached
            crossings += crossing
            now, current = reached, before
            continue
        if launch is None:
            break
        spent["launch"] += now - launch
        now, current = host.back_from(launch, spent)
    spent["host"] += now - order.first
    words = list(order.names)
    ordered = {words[name]: ns for name, ns in sorted(names.items(), key=lambda item: -item[1])}
    unseen = order.calls_of_stream_waits if not order.told_stream_waits else 0
    return CriticalPath(rank, total, **spent, names=ordered, crossings=crossings, unseen=unseen)


class _Host:
    """The host's waits, walked backwards; every one is on the path once at most."""

    def __init__(self, order: DeviceOrder) -> None:
        self._order = order
        self._unused = len(order.host_waits)

    def back_from(self, launch: int, spent: dict[str, int]) -> tuple[int, int | None]:
        """Back from a launch to the activity that the host last waited for, or None where it waited for none; and when
        that ended."""
        waits = self._order.host_waits
        at = bisect_right(waits, launch, 0, self._unused, key=lambda row: row[0]) - 1
        while at >= 0:
            ended, began, row = waits[at]
            activity = self._waited_for(row, ended)
            reached = self._order.activities[activity][1] if activity is not None else began
            if reached > began:
                spent["host"] += launch - ended
                spent["returning"] += ended - reached
                self._unused = at
                return reached, activity
            at -= 1
        self._unused = 0
        return launch, None

    def _waited_for(self, row: int, ended: int) -> int | None:
        """The activity that ended last before a call did, on the stream that the call waited for, where that is
        known."""
        known = self._order.waited_for(row)
        if known is None:
            return self._order.ended_by(ended)
        launched = self._order.launched_before(*known)
        return launched if launched is not None and self._order.activities[launched][1] <= ended else None
