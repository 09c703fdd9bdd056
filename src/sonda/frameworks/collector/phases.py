"""Phases of a program: their begin and end, with what the operating system counted in between."""

from __future__ import annotations

import os
import resource
from time import perf_counter_ns as now

from .recorder import Recorder, Stream

PAGE = resource.getpagesize()
WORTH_COUNTING = 1_000_000
"""ns. Reading the kernel's counters costs some µs: a phase that was shorter than this the last time goes without."""


class Phases:
    """Opens and closes phases on a thread's stream. Counters are those of the whole process (getrusage, statm)."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._statm = -1
        self._short: set = set()
        """Codes of the phases that are too short for counters."""
        names = ("transfer", "forward", "loss", "backward", "optimizer")
        self.codes = {name: recorder.define(kind="phase", name=name) for name in names}
        define = recorder.define
        self._faults = define(kind="value", quantity="page_faults", source="counted")
        self._switches = define(kind="value", quantity="context_switches", source="counted")
        self._cpu_time = define(kind="value", quantity="cpu_time", source="counted")
        self._resident = define(kind="value", quantity="resident_memory", source="measured")

    def open(self) -> None:
        try:
            self._statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._statm = -1

    def close(self) -> None:
        if self._statm >= 0:
            os.close(self._statm)
            self._statm = -1

    def begin(self, stream: Stream, code: int, context: object = None) -> None:
        """Open a phase; `context` is kept with it for whoever closes it."""
        usage = None if code in self._short else resource.getrusage(resource.RUSAGE_SELF)
        time = now()
        stream.phases.append((code, context, time, usage))
        stream.push((code, time))

    def end(self, stream: Stream) -> None:
        time = now()
        code, _, began, before = stream.phases.pop()
        if before is not None:
            self._count(stream, before)
        if time - began < WORTH_COUNTING:
            self._short.add(code)
        elif before is None:
            self._short.discard(code)
        stream.push((code + 1, time))
        if not stream.phases:
            self.recorder.breathe(stream)

    def _count(self, stream: Stream, before: resource.struct_rusage) -> None:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        stream.push((
            self._faults, usage.ru_minflt + usage.ru_majflt - before.ru_minflt - before.ru_majflt,
            self._switches, usage.ru_nvcsw + usage.ru_nivcsw - before.ru_nvcsw - before.ru_nivcsw,
            self._cpu_time, round(1e9 * (usage.ru_utime + usage.ru_stime - before.ru_utime - before.ru_stime)),
        ))  # fmt: skip
        if self._statm >= 0:
            stream.push((self._resident, int(os.pread(self._statm, 64, 0).split()[1]) * PAGE))
