"""What the operating system counts for this process: always there, with or without a PMU.

One group of the kernel's software events, inherited by every thread, where that is allowed. An ordinary user at
`perf_event_paranoid` 2 may open them for user mode only: the task clock is then whole all the same, but page faults
taken inside the kernel are left out and switches and migrations are all 0. Of these events only the clock is taken
there; page faults and switches come from `getrusage`, which counts them whole, and migrations are missing. Where perf
is refused altogether `getrusage` gives the CPU time too: of other threads that run, as of their last tick.
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
"""The kernel's work counts: a switch and a migration happen nowhere else, and a fault is taken where memory is used."""
CLOCK = tuple(event._replace(kernel=False) for event in EVENTS if event.name == "task_clock")
"""What is right without the kernel's part: the clock runs on in the kernel."""
WAIT_NS = 500_000
"""ns for each thread. Asking a thread for its wait costs about 2 µs: shorter phases go without."""


class OsCounters:
    """Opened when made. What is no reading of perf is taken at both ends of a phase by `begin` and `end`."""

    def __init__(self, time: int, children: bool = False, kernel: KernelCalls = LINUX) -> None:
        self.source = "perf"
        """Or `clock`: perf for the CPU time, getrusage for the rest; or `getrusage` for all."""
        self.errno = 0
        """Why it is not perf alone."""
        self._values: dict = {}
        self._queue = RunQueue()
        self._queue.open(time)
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
        """What `end` needs. `last` is how long this phase took the last time, ns."""
        queue = self._queue
        wait = queue.read(time) if queue.threads and last >= queue.threads * WAIT_NS else None
        return None if self.source == "perf" else resource.getrusage(resource.RUSAGE_SELF), wait

    def end(self, stream: Stream, before: tuple, time: int) -> None:
        """Push what was counted into the phase that is still open."""
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
                self._statm = -1  # the program closed descriptors that are not its own

    def facts(self) -> dict[str, Any]:
        return {"source": self.source, "errno": self.errno}

    def close(self) -> None:
        if self.set is not None:
            self.set.close()
        if self._statm >= 0:
            close_named(self._statm, "/statm")
            self._statm = -1
        self._queue.close()


def open_set(events: tuple, children: bool, kernel: KernelCalls) -> tuple:
    """A set of these events that counts, or None and the errno of the refusal."""
    found = None
    try:
        found = CounterSet(events, children, kernel)
        found.enable()
    except OSError as error:
        if found is not None:
            found.close()
        return None, error.errno or 0
    return found, 0
