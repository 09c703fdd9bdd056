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

import sys
from bisect import bisect_right
from dataclasses import dataclass

from sonda.analysis.device_order import DeviceOrder, device_order
from sonda.record.run import Run


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
    before: int = 0
    """Activities before the path's beginning that were not looked at, where a rank has more than can be held."""


def critical_path(run: Run, rank: int = 0) -> CriticalPath | None:
    """Of one rank of an imported trace; None where it has no activity of a device.

    Where it has more than `device_order.MOST`, it is the end of the path, as far as the last of them tell it; None
    where they do not.
    """
    order = device_order(run, rank)
    return walk(order, rank) if order is not None else None


def walk(order: DeviceOrder, rank: int) -> CriticalPath:
    """The path through activities that are arranged."""
    by_end = sorted(range(len(order.end)), key=order.end.__getitem__)
    current: int | None = by_end[-1]
    now = total_end = order.end[by_end[-1]]
    spent = {"device": 0, "queue": 0, "launch": 0, "host": 0, "returning": 0}
    names: dict[str, int] = {}
    host = _Host(order, by_end)
    seen: set[int] = set()
    crossings = 0
    first = order.first if order.forgotten else -sys.maxsize
    while current is not None and current not in seen and now > first:
        seen.add(current)
        start = max(min(order.start[current], now), first)
        spent["device"] += now - start
        names[order.name[current]] = names.get(order.name[current], 0) + now - start
        now = start
        before, launch, awaited = order.previous[current], order.launch[current], order.awaited(current)
        if launch is None or launch > now:
            launch = None  # not known, or a clock that disagrees: only streams are left to ask
        if awaited is not None and awaited not in seen and (before is None or order.end[awaited] > order.end[before]):
            before, crossing = awaited, 1
        else:
            crossing = 0
        if before is not None and (launch is None or order.end[before] >= launch):
            reached = max(min(order.end[before], now), first)
            spent["queue"] += now - reached
            crossings += crossing
            now, current = reached, before
            continue
        if launch is None:
            break
        launch = max(launch, first)
        spent["launch"] += now - launch
        returned = spent["returning"]
        now, current = host.back_from(launch, spent)
        if now < first:
            returned = min(first - now, spent["returning"] - returned)
            spent["returning"] -= returned
            spent["host"] -= first - now - returned
            now = first
    spent["host"] += now - order.first
    ordered = dict(sorted(names.items(), key=lambda item: -item[1]))
    unseen = order.calls_of_stream_waits if not order.told_stream_waits else 0
    return CriticalPath(
        rank, total_end - order.first, **spent, names=ordered, crossings=crossings, unseen=unseen,
        before=order.forgotten,
    )  # fmt: skip


class _Host:
    """The host's waits, walked backwards; every one is on the path once at most."""

    def __init__(self, order: DeviceOrder, by_end: list[int]) -> None:
        self._order = order
        self._by_end = by_end
        self._ends = [order.end[place] for place in by_end]
        self._unused = len(order.waits)

    def back_from(self, launch: int, spent: dict[str, int]) -> tuple[int, int | None]:
        """Back from a launch to the activity that the host last waited for, or None where it waited for none; and when
        that ended."""
        at = min(bisect_right(self._order.waits, launch, key=lambda one: one.ended), self._unused) - 1
        while at >= 0:
            wait = self._order.waits[at]
            activity = self._waited_for(wait.row, wait.ended)
            if activity is not None and self._order.end[activity] > wait.began:
                reached = self._order.end[activity]
                spent["host"] += launch - wait.ended
                spent["returning"] += wait.ended - reached
                self._unused = at
                return reached, activity
            at -= 1
        self._unused = 0
        return launch, None

    def _waited_for(self, row: int, ended: int) -> int | None:
        """The activity that ended last before a call did, on the stream that the call waited for, where that is
        known."""
        if row in self._order.waits_for:
            place, moment = self._order.waits_for[row]
            stream = self._order.streams.get(place)
            found = None if stream is None else stream.launched_before(moment)
            return found if found is not None and self._order.end[found] <= ended else None
        at = bisect_right(self._ends, ended) - 1
        return self._by_end[at] if at >= 0 else None
