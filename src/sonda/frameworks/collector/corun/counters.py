"""Counters of a window: what the operating system and the PMU count between two moments, in all threads.

Events come in groups that count together. Groups that do not fit into the PMU at once take turns within a window, which
lasts seconds. Their times running show it, and their counts are scaled.
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
"""Whose counts: this process; child processes that have ended; child processes that run, counted by perf events."""


class WindowCounters:
    """Counters of a window, opened by the constructor. New threads count; new child processes too, unless own."""

    def __init__(self, groups: Sequence[Mapping[str, Any]] = (), whose: str = OWN, kernel: KernelCalls = LINUX) -> None:
        """`groups` of the PMU have `events`, each with the fields of `Event`, and `whole`: whether counts are scaled.

        On a processor with two kinds of core, counters of one kind do not run all the time, and are not scaled.
        """
        self.whose = whose
        self.reason = ""
        """Why the PMU counts nothing, where groups were requested."""
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
            for counter_set, _ in self._sets:
                counter_set.enable()
        except OSError as error:
            self.reason = f"the kernel refused {getattr(error, 'event', '') or 'the counters'}: {error.strerror}"
            self._sets = []

    @property
    def counts_instructions(self) -> bool:
        """Whether instructions are counted."""
        return any(event.name == "instructions" for counter_set, _ in self._sets for event in counter_set.events)

    def cpu_time(self) -> int:
        """CPU time of all threads so far, ns; 0 where it is not known."""
        if self.whose == OWN:
            return process_time_ns()
        if self.whose == RUNNING:
            return int(self._system.totals().get("task_clock", 0)) if self._system is not None else 0
        return round(_usage(self._usage)["cpu_time"])

    def total_events(self, name: str) -> float:
        """The count of an event of the PMU so far, not scaled."""
        return sum(counter_set.totals().get(name, 0) for counter_set, _ in self._sets)

    def read(self) -> dict[str, Any]:
        """All counts at this moment, for `count_since`."""
        system = self._read_system()
        reading: dict[str, Any] = {"system": system, "pmu": [_add_up(counter_set) for counter_set, _ in self._sets]}
        if self.whose == OWN:
            time = now()
            self._queue.open(time)
            if self._queue.threads:
                system["run_queue_wait"] = self._queue.read(time)
        return reading

    def _read_system(self) -> dict[str, float]:
        if self._system is not None:
            names = {"task_clock": "cpu_time", "page_faults": "page_faults", "context_switches": "context_switches"}
            totals = self._system.totals()
            counts = {ours: totals[theirs] for theirs, ours in names.items() if theirs in totals}
            own = _usage(resource.RUSAGE_SELF)  # this process waits for the program and is no part of it
            return {"time": now(), **{name: value - own[name] for name, value in counts.items()}}
        if self.whose == RUNNING:
            return {"time": now()}
        return {"time": now(), **_usage(self._usage)}

    def count_since(self, before: Mapping[str, Any]) -> dict[str, float]:
        """Counts since a reading, by quantity: time, cpu_time, run_queue_wait (ns), page_faults, context_switches, and
        events of the PMU. `scaled` is the smallest share of the time in which an event was counted, where that is less
        than all of it."""
        after = self.read()
        counts = {name: value - before["system"].get(name, 0) for name, value in after["system"].items()}
        least = 1.0
        for (counter_set, whole), old, new in zip(self._sets, before["pmu"], after["pmu"], strict=True):
            enabled, running = new[0] - old[0], new[1] - old[1]
            if enabled <= 0 or (whole and not running):
                continue  # the counters are gone, or the group never counted
            scale = 1.0
            if whole and running < enabled:
                scale = enabled / running
                least = min(least, running / enabled)
            for event, first, last in zip(counter_set.events, old[2], new[2], strict=True):
                counts[event.name] = counts.get(event.name, 0.0) + (last - first) * scale
        if least < 1:
            counts["scaled"] = least
        return counts

    def close(self) -> None:
        if self._system is not None:
            self._system.close()
        for counter_set, _ in self._sets:
            counter_set.close()
        self._sets = []
        self._queue.close()


def _usage(whose: int) -> dict[str, float]:
    usage = resource.getrusage(whose)
    return {
        "cpu_time": 1e9 * (usage.ru_utime + usage.ru_stime),
        "page_faults": usage.ru_minflt + usage.ru_majflt,
        "context_switches": usage.ru_nvcsw + usage.ru_nivcsw,
    }


def _add_up(counter_set: CounterSet) -> tuple[int, int, list[int]]:
    """Times enabled and running (ns) and counts, summed over threads; zeros where the counters are gone."""
    enabled = running = 0
    values = [0] * len(counter_set.events)
    try:
        for group in counter_set.groups:
            reading = group.read()
            enabled += reading.enabled
            running += reading.running
            values = [old + new for old, new in zip(values, reading.values, strict=True)]
    except OSError:
        return 0, 0, [0] * len(counter_set.events)
    return enabled, running, values
