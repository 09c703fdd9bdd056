"""Counters of a window: what the operating system and the PMU count between two moments, of all threads.

Events come in groups that count together. Windows last seconds, so groups that do not fit into the PMU at once may take
turns: their times tell, and the counts are scaled.
"""

from __future__ import annotations

import resource
from collections.abc import Mapping, Sequence
from time import perf_counter_ns as now
from time import process_time_ns
from typing import Any

from ..counters.perf_event import LINUX, Event, KernelCalls
from ..counters.run_queue import RunQueue
from ..counters.sets import CounterSet
from ..counters.system import CLOCK, EVENTS, open_set

OWN, ENDED, RUNNING = "own", "ended", "running"
"""Whose: of this process; of child processes that have ended; of child processes that run, as perf events see them."""


class WindowCounters:
    """Opened when made: threads and, unless only `own` are counted, processes started from now on are counted."""

    def __init__(self, groups: Sequence[Mapping[str, Any]] = (), whose: str = OWN, kernel: KernelCalls = LINUX) -> None:
        """`groups` of the PMU: `events`, each as `Event` takes it, and whether a time is the `whole` time.

        On a processor with two kinds of core, counters of one kind do not run all the time, and nothing is scaled.
        """
        self.whose = whose
        self.reason = ""
        """Why the PMU counts nothing, where groups were asked for."""
        self._sets: list = []
        self._system: CounterSet | None = None
        self._queue = RunQueue()
        self._usage = resource.RUSAGE_SELF if whose == OWN else resource.RUSAGE_CHILDREN
        children = whose != OWN
        if whose == RUNNING:
            # An ordinary user may have the clock where the kernel's own work is refused.
            self._system = open_set(EVENTS, children, kernel)[0] or open_set(CLOCK, children, kernel)[0]
        try:
            for group in groups:
                events = [Event(**event) for event in group["events"]]
                self._sets.append((CounterSet(events, children, kernel), bool(group.get("whole", True))))
            for one, _ in self._sets:
                one.enable()
        except OSError as error:
            self.reason = f"the kernel refused {getattr(error, 'event', '') or 'the counters'}: {error.strerror}"
            self._sets = []

    @property
    def counts_instructions(self) -> bool:
        """Whether instructions are counted."""
        return any(event.name == "instructions" for one, _ in self._sets for event in one.events)

    def cpu_time(self) -> int:
        """CPU time of all threads so far, ns; 0 where nobody tells."""
        if self.whose == OWN:
            return process_time_ns()
        if self.whose == RUNNING:
            return int(self._system.totals().get("task_clock", 0)) if self._system is not None else 0
        return round(_usage(self._usage)["cpu_time"])

    def total_events(self, name: str) -> float:
        """An event of the PMU so far, as it was counted."""
        return sum(one.totals().get(name, 0) for one, _ in self._sets)

    def read(self) -> dict[str, Any]:
        """Everything at this moment; `since` makes use of it."""
        found: dict[str, Any] = {"system": self._read_system(), "pmu": [_reading(one) for one, _ in self._sets]}
        if self.whose == OWN:
            time = now()
            self._queue.open(time)
            if self._queue.threads:
                found["system"]["run_queue_wait"] = self._queue.read(time)
        return found

    def _read_system(self) -> dict[str, float]:
        if self._system is not None:
            names = {"task_clock": "cpu_time", "page_faults": "page_faults", "context_switches": "context_switches"}
            totals = self._system.totals()
            found = {ours: totals[theirs] for theirs, ours in names.items() if theirs in totals}
            own = _usage(resource.RUSAGE_SELF)  # who waits for the program is not the program
            return {"time": now(), **{name: value - own[name] for name, value in found.items()}}
        if self.whose == RUNNING:
            return {"time": now()}
        return {"time": now(), **_usage(self._usage)}

    def count_since(self, before: Mapping[str, Any]) -> dict[str, float]:
        """Counts since a reading, by quantity: time, cpu_time, run_queue_wait (ns), page_faults, context_switches, and
        what the PMU counted. `scaled` is the smallest share of the time that an event was really counted, where that
        is not all of it."""
        after = self.read()
        found = {name: value - before["system"].get(name, 0) for name, value in after["system"].items()}
        least = 1.0
        for (one, whole), old, new in zip(self._sets, before["pmu"], after["pmu"], strict=True):
            enabled, running = new[0] - old[0], new[1] - old[1]
            if enabled <= 0 or (whole and not running):
                continue  # the counters are gone, or it never had one: nothing is known
            scale = 1.0
            if whole and running < enabled:
                scale = enabled / running
                least = min(least, running / enabled)
            for event, first, last in zip(one.events, old[2], new[2], strict=True):
                found[event.name] = found.get(event.name, 0.0) + (last - first) * scale
        if least < 1:
            found["scaled"] = least
        return found

    def close(self) -> None:
        for one in (*(one for one, _ in self._sets), *([self._system] if self._system else [])):
            one.close()
        self._sets = []
        self._queue.close()


def _usage(whose: int) -> dict[str, float]:
    usage = resource.getrusage(whose)
    return {
        "cpu_time": 1e9 * (usage.ru_utime + usage.ru_stime),
        "page_faults": usage.ru_minflt + usage.ru_majflt,
        "context_switches": usage.ru_nvcsw + usage.ru_nivcsw,
    }


def _reading(one: CounterSet) -> tuple[int, int, list[int]]:
    """Times enabled and running (ns) and counts, added up over threads; zeros once the counters are gone."""
    enabled = running = 0
    values = [0] * len(one.events)
    try:
        for group in one.groups:
            reading = group.read()
            enabled += reading.enabled
            running += reading.running
            values = [old + new for old, new in zip(values, reading.values, strict=True)]
    except OSError:
        return 0, 0, [0] * len(one.events)
    return enabled, running, values
