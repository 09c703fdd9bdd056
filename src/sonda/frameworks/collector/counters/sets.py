"""Sets of counters: the same group of events in every thread of this process; and how sets are read together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..recorder import AGAIN, READING_BIT, Recorder, Stream
from .perf_event import LINUX, Event, EventGroup, KernelCalls, PerfEventError, attach


class CounterSet:
    """Opened disabled, in every thread that there is; threads that these make inherit it."""

    def __init__(self, events: Sequence[Event], children: bool = False, kernel: KernelCalls = LINUX) -> None:
        """Raises PerfEventError where an event cannot be opened."""
        self.events = tuple(events)
        self.kernel = kernel
        self.groups, self.stable = attach(events, children, kernel)
        if not self.groups:
            raise PerfEventError(0, "no thread to count")
        self.size = self.groups[0].size
        self.descriptors = [group.leader for group in self.groups]
        """What is read; empty once closed, so that no number is read that has become another file's."""

    def describe_reading(self, recorder: Recorder, timed: bool = True, whole: bool = True) -> dict:
        """How a reading of this set is to be understood, with its quantities defined.

        `timed` keeps the times enabled and running beside the values; without `whole` (one kind of core of several) a
        time running that is shorter is no reason to scale.
        """
        define = recorder.define
        names = [event.name for event in self.events]
        times = ["counter_enabled", "counter_running"] if timed else []
        counted = [define(kind="value", quantity=name, source="counted", adds=True) for name in (*times, *names)]
        scaled = names if whole else []
        estimated = [define(kind="value", quantity=name, source="estimated", adds=True) for name in scaled]
        return {"events": len(names), "threads": len(self.groups), "timed": timed,
                "values": [one // 2 for one in counted], "estimated": [one // 2 for one in estimated]}  # fmt: skip

    def totals(self) -> dict:
        """Counts since the set was enabled, by name; empty once it is closed."""
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
        """The program closed descriptors that are not its own: what they are now is nobody's to read, nor to close."""
        self.descriptors.clear()
        self.groups = []

    def close(self) -> None:
        groups: list[EventGroup] = self.groups
        self.forget_descriptors()  # before they are closed: their numbers may be another file's at once
        for group in groups:
            group.close()


class CounterReader:
    """Reads sets together. Decoding is left to whoever reads the file, so that it costs little more than `os.read`."""

    def __init__(self, recorder: Recorder, sets: Sequence[CounterSet], parts: Sequence[dict]) -> None:
        self.flag = 0
        """Added to the code of a begin or end, it says that the next reading in the file was taken there."""
        self.take: Callable[[Stream], int] = lambda stream: 0
        """`take(stream)` keeps a reading and gives the flag, or 0 where nothing could be read."""
        self.single: CounterSet | None = None
        """The only set, where one `os.read` does it."""
        if sets:
            self.flag = (recorder.define(kind="counters", parts=list(parts)) // 2 + 1) * READING_BIT
            self.single = sets[0] if len(sets) == 1 and len(sets[0].groups) == 1 else None
            self.take = self._taker(list(sets))
        self.again = self.flag | AGAIN if self.flag else 0
        """The flag of a boundary at which the last reading holds too."""

    def _taker(self, sets: list) -> Callable[[Stream], int]:
        flag = self.flag
        read = sets[0].kernel.read
        wanted = [(one.descriptors, one.size) for one in sets]

        def take(stream: Stream) -> int:
            try:
                raw = b"".join([read(one, size) for descriptors, size in wanted for one in descriptors])
            except OSError:
                raw = b""
            if not raw:
                for one in sets:
                    one.forget_descriptors()
                return 0
            stream.count(raw)
            return flag

        return take
