"""Sets of counters, the same group of events in every thread of this process, and readers of several sets."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..recorder import AGAIN, READING_BIT, Recorder, Stream
from .perf_event import LINUX, Event, EventGroup, KernelCalls, PerfEventError, attach


class CounterSet:
    """One group of events in every thread of this process, opened disabled. New threads inherit it."""

    def __init__(self, events: Sequence[Event], children: bool = False, kernel: KernelCalls = LINUX) -> None:
        """Raises PerfEventError where an event cannot be opened."""
        self.events = tuple(events)
        self.kernel = kernel
        self.groups, self.stable = attach(events, children, kernel)
        if not self.groups:
            raise PerfEventError(0, "no thread to count")
        self.size = self.groups[0].size
        self.descriptors = [group.leader for group in self.groups]
        """The descriptors to read; empty after `close`, because the program may reuse their numbers."""

    def describe_reading(self, recorder: Recorder, timed: bool = True, whole: bool = True) -> dict:
        """Define the quantities of this set; returns how its readings are to be decoded.

        With `timed`, the times enabled and running are quantities too. Without `whole` (counters of one kind of core of
        several), values are not scaled where the time running is shorter than the time enabled.
        """
        define = recorder.define
        names = [event.name for event in self.events]
        times = ["counter_enabled", "counter_running"] if timed else []
        counted = [define(kind="value", quantity=name, source="counted", adds=True) for name in (*times, *names)]
        scaled = names if whole else []
        estimated = [define(kind="value", quantity=name, source="estimated", adds=True) for name in scaled]
        return {"events": len(names), "threads": len(self.groups), "timed": timed,
                "values": [code // 2 for code in counted], "estimated": [code // 2 for code in estimated]}  # fmt: skip

    def totals(self) -> dict:
        """Counts since the set was enabled, by name; {} after `close`."""
        try:
            readings = [group.read() for group in self.groups]
        except OSError:
            return {}
        if not readings:
            return {}
        return {event.name: sum(reading.values[at] for reading in readings) for at, event in enumerate(self.events)}

    def enable(self) -> None:
        for group in self.groups:
            group.enable()

    def disable(self) -> None:
        for group in self.groups:
            group.disable()

    def forget_descriptors(self) -> None:
        """Forget the descriptors without closing them: the program closed them, and may have reused their numbers."""
        self.descriptors.clear()
        self.groups = []

    def close(self) -> None:
        groups: list[EventGroup] = self.groups
        self.forget_descriptors()  # first: once closed, their numbers may be reused at once
        for group in groups:
            group.close()


class CounterReader:
    """Reads several sets together. Readings are stored undecoded, so that one costs little more than `os.read`."""

    def __init__(self, recorder: Recorder, sets: Sequence[CounterSet], parts: Sequence[dict]) -> None:
        self.flag = 0
        """Added to the code of a begin or end, it means: the next reading in the file was taken there."""
        self.take: Callable[[Stream], int] = lambda stream: 0
        """`take(stream)` stores a reading and returns the flag, or 0 where nothing could be read."""
        self.single: CounterSet | None = None
        """The only set, where one `os.read` reads everything."""
        if sets:
            self.flag = (recorder.define(kind="counters", parts=list(parts)) // 2 + 1) * READING_BIT
            self.single = sets[0] if len(sets) == 1 and len(sets[0].groups) == 1 else None
            self.take = self._make_take(list(sets))
        self.again = self.flag | AGAIN if self.flag else 0
        """The flag of a boundary at which the last reading holds too."""

    def _make_take(self, sets: list) -> Callable[[Stream], int]:
        flag = self.flag
        read = sets[0].kernel.read
        reads = [(counter_set.descriptors, counter_set.size) for counter_set in sets]

        def take(stream: Stream) -> int:
            try:
                raw = b"".join([read(descriptor, size) for descriptors, size in reads for descriptor in descriptors])
            except OSError:
                raw = b""
            if not raw:
                for counter_set in sets:
                    counter_set.forget_descriptors()
                return 0
            stream.count(raw)
            return flag

        return take
