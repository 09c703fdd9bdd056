"""The critical path of a device's work: what would have had to be shorter for the whole to end earlier.

It is walked backwards from the end of the last activity. Before an activity stands either the one before it on its
stream, where that ended after the launch, or its launch. Before a launch stands the host, back to the last call that
waited for the device, and before that call's end the activity it waited for. Waits between streams (events) are not in
traces and not seen. The parts add up to the time from the first event to that end.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass

import numpy as np

from sonda.analysis.kernels import LATENCY, ON_DEVICE
from sonda.record.run import Run
from sonda.record.span_file import read_blocks

SYNCHRONISING = re.compile(
    r"(?:cuda|cu|hip)(?:Device|Stream|Event|Ctx)Synchronize|(?:cuda|hip)Memcpy|cuMemcpy\w+toH_v2"
)
MOST = 500_000
"""Activities; each takes about 150 bytes while the path is walked."""


@dataclass(frozen=True)
class CriticalPath:
    """ns on the path of one rank by what they were spent on."""

    rank: int
    total: int
    device: int
    """Activities running."""
    queue: int
    """Between an activity and the next of its stream, which was already launched."""
    launch: int
    """From a launch's beginning to the activity's."""
    host: int
    """The host between what it waited for and the launch."""
    returning: int
    """From the end of an activity to the end of the call that waited for it."""
    names: dict[str, int]
    """ns of activities by name, longest first."""


@dataclass
class _Work:
    """Activities of one rank in the order of their starts, and the calls that wait."""

    start: list[int]
    end: list[int]
    launch: list[int | None]
    stream: list[int]
    name: list[str]
    waits: list[tuple[int, int]]
    """Ends and beginnings of waiting calls, by end."""
    first: int


def critical_path(run: Run, rank: int = 0) -> CriticalPath | None:
    """Of one rank of an imported trace; None where it has no activity of a device, or too many of them."""
    work = _collect(run, rank)
    return _walk(work, rank) if work is not None else None


def _collect(run: Run, rank: int) -> _Work | None:
    start: list[np.ndarray] = []
    end: list[np.ndarray] = []
    latency: list[np.ndarray] = []
    stream: list[int] = []
    names: list[str] = []
    waits: list[tuple[int, int]] = []
    first, count = None, 0
    devices: dict[tuple[str, int], int] = {}
    for spans in read_blocks(run, ("stream", "rank", "device", LATENCY)):
        mine = spans.number("rank") == rank
        if not mine.any():
            continue
        begins, ends = spans.number("start"), spans.number("start") + spans.number("duration")
        lowest = int(begins[mine].min())
        first = lowest if first is None else min(first, lowest)
        active = np.zeros(len(spans), dtype=bool)
        for kind in ON_DEVICE:
            active |= spans.words("kind").equal(kind)
        word = spans.words("name")
        waiting = np.array([SYNCHRONISING.fullmatch(text) is not None for text in word.words])[word.codes]
        for row in np.flatnonzero(mine & ~active & waiting).tolist():
            waits.append((int(ends[row]), int(begins[row])))
        rows = np.flatnonzero(mine & active)
        count += len(rows)
        if count > MOST:
            return None
        start.append(begins[rows])
        end.append(ends[rows])
        latency.append(spans.metric("launch_latency", "measured")[rows])
        device = spans.words("device")
        places = zip(device.codes[rows].tolist(), spans.number("stream")[rows].tolist(), strict=True)
        stream += [devices.setdefault((device.words[code], number), len(devices)) for code, number in places]
        names += [word.words[code] for code in word.codes[rows].tolist()]
    if not count or first is None:
        return None
    starts = np.concatenate(start)
    known = np.concatenate(latency)
    launches: list[int | None] = [
        None if late != late else begin - int(late) for begin, late in zip(starts.tolist(), known.tolist(), strict=True)
    ]
    return _Work(starts.tolist(), np.concatenate(end).tolist(), launches, stream, names, sorted(waits), first)


def _walk(work: _Work, rank: int) -> CriticalPath:
    previous = _previous(work.stream)
    by_end = sorted(range(len(work.end)), key=work.end.__getitem__)
    ends = [work.end[place] for place in by_end]
    current: int | None = by_end[-1]
    now = total_end = ends[-1]
    spent = {"device": 0, "queue": 0, "launch": 0, "host": 0, "returning": 0}
    names: dict[str, int] = {}
    unused = len(work.waits)
    while current is not None:
        start = min(work.start[current], now)
        spent["device"] += now - start
        names[work.name[current]] = names.get(work.name[current], 0) + now - start
        now = start
        before, launch = previous[current], work.launch[current]
        if launch is None or launch > now:
            launch = None  # not known, or a clock that disagrees: only the stream is left to ask
        if before is not None and (launch is None or work.end[before] >= launch):
            reached = min(work.end[before], now)
            spent["queue"] += now - reached
            now, current = reached, before
            continue
        if launch is None:
            break
        spent["launch"] += now - launch
        now = launch
        now, current, unused = _host(work, by_end, ends, now, spent, unused)
    spent["host"] += now - work.first
    ordered = dict(sorted(names.items(), key=lambda item: -item[1]))
    return CriticalPath(rank, total_end - work.first, **spent, names=ordered)


def _host(
    work: _Work, by_end: list[int], ends: list[int], now: int, spent: dict[str, int], unused: int
) -> tuple[int, int | None, int]:
    """Back from a launch to the activity that the host last waited for, or None where it waited for none.

    Of the waiting calls the first `unused` are left, because every one is on the path once at most.
    """
    at = min(bisect_right(work.waits, (now, now)), unused) - 1
    while at >= 0:
        ended, began = work.waits[at]
        place = bisect_right(ends, ended) - 1
        if place >= 0 and ends[place] > began:
            spent["host"] += now - ended
            spent["returning"] += ended - ends[place]
            return ends[place], by_end[place], at
        at -= 1
    return now, None, 0


def _previous(stream: list[int]) -> list[int | None]:
    """For every activity the one before it on its stream."""
    last: dict[int, int] = {}
    found: list[int | None] = []
    for place, number in enumerate(stream):
        found.append(last.get(number))
        last[number] = place
    return found
