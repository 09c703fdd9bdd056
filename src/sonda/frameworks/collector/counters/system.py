"""What the operating system counts for this process, with or without a PMU.

Where it is allowed, one group of the kernel's software events counts, and every thread inherits it. An ordinary user at
`perf_event_paranoid` 2 may open these events for user mode only. The task clock is complete all the same, but page
faults inside the kernel are left out, and switches and migrations are 0. So only the clock is read there: page faults
and switches come from `getrusage`, which counts them completely, and migrations are missing. Where perf is refused
altogether, `getrusage` gives the CPU time too; that of other running threads is as of their last tick.
"""

from __future__ import annotations

import os
import resource
from typing import Any

from ..descriptors import close_named, move_aside
from ..recorder import Recorder, Stream
from .perf_event import LINUX, SOFTWARE, TYPE_SOFTWARE, Event, KernelCalls
from .run_queue import RunQueue
from .sets import CounterSet

PAGE = resource.getpagesize()
STATM = "/proc/self/statm"
EVENTS = tuple(Event(name.replace("-", "_"), TYPE_SOFTWARE, config, kernel=True) for name, config in SOFTWARE.items())
"""The kernel's work counts too: switches and migrations happen in the kernel only, and faults wherever memory is
used."""
CLOCK = tuple(event._replace(kernel=False) for event in EVENTS if event.name == "task_clock")
"""The event that is complete without the kernel's work: the clock goes on in the kernel."""
WAIT_NS = 500_000
"""ns for each thread. Asking a thread how long it waited costs about 2 µs, so shorter phases leave it out."""


class OsCounters:
    """Counters of the operating system, opened by the constructor. `begin` and `end` read those that are not perf's."""

    def __init__(self, time: int, children: bool = False, kernel: KernelCalls = LINUX) -> None:
        self.source = "perf"
        """`perf`; `clock`: perf for the CPU time, getrusage for the rest; or `getrusage` for everything."""
        self.errno = 0
        """Why the source is not perf alone; 0 where it is."""
        self._values: dict = {}
        self._opened = time
        self._queue = RunQueue()
        self._queue.open(time)
        self._before = _read_processor_time(), self._queue.read(time)
        """What threads ran and waited before: a block of a notebook, or a test, begins late in its process."""
        self.set, self.errno = open_set(EVENTS, children, kernel)
        if self.set is None:
            self.set, _ = open_set(CLOCK, children, kernel)
            self.source = "getrusage" if self.set is None else "clock"
        try:
            self._statm = move_aside(os.open(STATM, os.O_RDONLY | os.O_CLOEXEC))
        except OSError:
            self._statm = -1

    def define(self, recorder: Recorder) -> None:
        names = ("task_clock", "page_faults", "context_switches", "run_queue_wait")
        define = recorder.define
        self._values = {name: define(kind="value", quantity=name, source="counted", adds=True) for name in names}
        self._values["resident_memory"] = define(kind="value", quantity="resident_memory", source="measured")

    def begin(self, last: int, time: int) -> tuple:
        """Read at the begin of a phase; the result is for `end`. `last`: how long this phase took the last time, ns."""
        queue = self._queue
        wait = queue.read(time) if queue.threads and last >= queue.threads * WAIT_NS else None
        return None if self.source == "perf" else resource.getrusage(resource.RUSAGE_SELF), wait

    def end(self, stream: Stream, before: tuple, time: int) -> None:
        """Push the counts since `begin` into the phase, which is still open."""
        values = self._values
        usage, wait = before
        if usage is not None:
            now = resource.getrusage(resource.RUSAGE_SELF)
            stream.push((
                values["page_faults"], now.ru_minflt + now.ru_majflt - usage.ru_minflt - usage.ru_majflt,
                values["context_switches"], now.ru_nvcsw + now.ru_nivcsw - usage.ru_nvcsw - usage.ru_nivcsw,
            ))  # fmt: skip
            if self.set is None:
                spent = now.ru_utime + now.ru_stime - usage.ru_utime - usage.ru_stime
                stream.push((values["task_clock"], round(1e9 * spent)))
        if wait is not None:
            stream.push((values["run_queue_wait"], self._queue.read(time) - wait))
        if self._statm >= 0:
            try:
                stream.push((values["resident_memory"], int(os.pread(self._statm, 64, 0).split()[1]) * PAGE))
            except (OSError, IndexError, ValueError):
                self._statm = -1  # the program closed the descriptor

    def facts(self) -> dict[str, Any]:
        return {"source": self.source, "errno": self.errno}

    def thread_times(self, time: int) -> dict[str, int]:
        """ns that threads ran and waited for a processor since this was opened, in how many ns, and what they ran
        before; empty where nobody counts.

        Phases too short to ask in them are in these sums.
        """
        if not self._queue.threads:
            return {}
        ran, waited = self._before
        return {
            "ran_ns": _read_processor_time() - ran, "waited_ns": self._queue.read(time) - waited,
            "lasted_ns": time - self._opened, "ran_before_ns": ran,
        }  # fmt: skip

    def close(self) -> None:
        if self.set is not None:
            self.set.close()
        if self._statm >= 0:
            close_named(self._statm, "/statm")
            self._statm = -1
        self._queue.close()


def _read_processor_time() -> int:
    """ns that this process has run so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return round(1e9 * (usage.ru_utime + usage.ru_stime))


def open_set(events: tuple, children: bool, kernel: KernelCalls) -> tuple:
    """An enabled set of these events and 0; None and the errno where the kernel refuses."""
    counter_set = None
    try:
        counter_set = CounterSet(events, children, kernel)
        counter_set.enable()
    except OSError as error:
        if counter_set is not None:
            counter_set.close()
        return None, error.errno or 0
    return counter_set, 0
