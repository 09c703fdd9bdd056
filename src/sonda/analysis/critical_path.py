"""The critical path of a device's work: what would have had to be shorter for the whole to end earlier.

It is walked backwards from the end of the last activity. Before an activity stands what ended last of three: the one
before it on its stream; what its stream was made to wait for on another stream; its launch. Before a launch stands the
host, back to the last call that waited for the device, on any thread, and before that call's end the activity it waited
for. The parts add up to the time from the first event to that end.

What streams wait for is in traces that were recorded with events of synchronisation (torch.profiler's
`enable_cuda_sync_events`, Nsight Systems). Those of CUDA 13 say which stream waits and not for what; then it is the
activity launched before on another stream that ended last before the waiting one began. Without such events waits
between streams are not seen, and `unseen` says how many there are.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from sonda.analysis.device_order import COLUMNS, UNKNOWN, DeviceOrder
from sonda.record.run import Run
from sonda.record.span import Spans
from sonda.record.span_file import read_blocks


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
        return walk(order, rank)


def critical_paths(run: Run, ranks: Sequence[int]) -> list[CriticalPath]:
    """Of these ranks of an imported trace, of each that has an activity of a device. Where the spans of every rank
    stand together, as an importer writes them, the run is read once."""
    found: dict[int, CriticalPath | None] = {}
    row = 0
    for rank, blocks in groupby(read_blocks(run, COLUMNS), key=_only_rank):
        if rank is None or rank in found:
            found = {one: critical_path(run, one) for one in ranks}
            break
        with DeviceOrder() as order:
            row = order.read(blocks, rank, row)
            found[rank] = walk(order, rank)
    paths = [found.get(rank) for rank in ranks]
    return [path for path in paths if path is not None]


def _only_rank(spans: Spans) -> int | None:
    """The rank of all spans of a block; None where there are several."""
    ranks = spans.number("rank")
    return int(ranks[0]) if len(ranks) and (ranks == ranks[0]).all() else None


def walk(order: DeviceOrder, rank: int) -> CriticalPath | None:
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
        found = self._order.launched_before(*known)
        return found if found is not None and self._order.activities[found][1] <= ended else None
