"""The counters of this process, opened before the framework starts its threads and read at every boundary.

The parent leaves `counting.json` in the collector's directory. `groups` are lists of events (`name`, `type`, `config`,
and where needed `config1`, `config2`, `kernel`) that count together. `beside` are groups that are read at every
boundary along with the current one. `children` says whether child processes count, `layers` whether counters are read
at layers too. One group counts at a time and every step takes the next, so that the kernel never switches groups inside
a phase.
"""

from __future__ import annotations

import json
import os
import weakref
from collections.abc import Callable
from time import perf_counter_ns as now
from typing import Any

from ..recorder import Recorder, Stream
from .perf_event import LINUX, Event, KernelCalls
from .sets import CounterReader, CounterSet
from .system import OsCounters

FILE = "counting.json"
THREADS_TOLD_APART = (5, 13)
"""The version of Linux since which threads can be counted without child processes."""


class Counting:
    """The counters of this process. The constructor opens them and enables one group; `define` tells a recorder."""

    def __init__(self, directory: str, kernel: KernelCalls = LINUX) -> None:
        self._request = _read_request(directory)
        self.children = bool(self._request.get("children", False))
        self.layers = bool(self._request.get("layers", True))
        """Whether requested counters are read at layers."""
        self.on_turn: Callable[[], None] = lambda: None
        """Called when another group begins to count."""
        self._kernel = kernel
        self._announced = False
        self._begin()
        _close_after_fork(self)

    def _begin(self) -> None:
        self.os = OsCounters(now(), self.children, self._kernel)
        self.sets: list = []
        self.beside: list = []
        self.state: dict = {}
        """How opening the requested groups went."""
        self._readers: list = []
        """For every group two readers: of the group, and of the group with what the operating system counts."""
        self._turn = 0
        self._steps = 0
        if self._request.get("groups"):
            self._open(self._request)

    def begin_in_child(self, recorder: Recorder) -> None:
        """Open counters for a forked child, which has closed its copies of its parent's counters.

        Where the parent's counters count its children, these do not count themselves again.
        """
        if not self._counts_children():
            self._begin()
            self.define(recorder)

    def _counts_children(self) -> bool:
        return self.children or _kernel_release() < THREADS_TOLD_APART

    def _open(self, request: dict) -> None:
        try:
            for events in request["groups"]:
                self.sets.append(CounterSet([Event(**event) for event in events], self.children, self._kernel))
            for events in request.get("beside", ()):
                self.beside.append(CounterSet([Event(**event) for event in events], self.children, self._kernel))
            for counter_set in (*self.beside, self.sets[0]):
                counter_set.enable()
        except (OSError, TypeError) as error:
            self._close_sets()
            # The parent knows the machine, and explains the error.
            self.state = {"errno": getattr(error, "errno", 0) or 0, "event": getattr(error, "event", ""),
                          "message": str(error)}  # fmt: skip
            return
        stable = all(counter_set.stable for counter_set in (*self.sets, *self.beside))
        self.state = {"groups": len(self.sets), "threads": len(self.sets[0].groups), "stable": stable}

    @property
    def counts_layers(self) -> bool:
        return self.layers and bool(self.sets)

    def define(self, recorder: Recorder) -> None:
        """Define the counters in this recorder, which stores their readings from now on."""
        self.os.define(recorder)
        system = [] if self.os.set is None else [self.os.set]
        system_parts = [counter_set.describe_reading(recorder, timed=False) for counter_set in system]
        beside_parts = [beside.describe_reading(recorder, timed=False, whole=False) for beside in self.beside]
        for group in self.sets:
            sets = [group, *self.beside]
            parts = [group.describe_reading(recorder, whole=not self.beside), *beside_parts]
            self._readers.append((
                CounterReader(recorder, sets, parts), CounterReader(recorder, [*sets, *system], [*parts, *system_parts])
            ))  # fmt: skip
        if not self.sets:
            self._readers.append((CounterReader(recorder, [], []), CounterReader(recorder, system, system_parts)))

    @property
    def reader(self) -> CounterReader:
        """Reads the current group; nothing where none was requested."""
        return self._readers[self._turn][0]

    @property
    def reader_with_os(self) -> CounterReader:
        """Reads the current group and what the operating system counts."""
        return self._readers[self._turn][1]

    def take(self, stream: Stream) -> int:
        """Store a reading of the current group in a stream; the flag for the code of its boundary."""
        return self._readers[self._turn][0].take(stream)

    def end_announced_step(self) -> None:
        """A step that the program announced ended. From now on only announced steps turn the groups."""
        self._announced = True
        self._rotate()

    def note_steps(self, steps: int) -> None:
        """So many steps have ended so far. Called between phases."""
        if steps != self._steps:
            self._steps = steps
            if not self._announced:
                self._rotate()

    def _rotate(self) -> None:
        """Let the next group count."""
        if len(self.sets) > 1:
            following = (self._turn + 1) % len(self.sets)
            try:
                self.sets[self._turn].disable()
                self.sets[following].enable()
            except OSError:
                self._close_sets()
                return
            self._turn = following
            self.on_turn()

    def facts(self) -> dict:
        """Facts for the parent: where counts came from, and the counts of the whole process."""
        facts: dict[str, Any] = {"os": self.os.facts()}
        if self.state:
            facts["pmu"] = self.state
        if not self.children and self._counts_children():
            facts["children"] = True
        return {"counting": facts, "counted": self.totals(), "thread_times": self.os.thread_times(now())}

    def totals(self) -> dict:
        """Counts since the beginning, by name, of events that count all the time: those that every group has."""
        totals = self.os.set.totals() if self.os.set is not None else {}
        group_totals = [group.totals() for group in self.sets]
        for name in group_totals[0] if group_totals else ():
            if all(name in counts for counts in group_totals):
                totals[name] = sum(counts[name] for counts in group_totals)
        return totals

    def _close_sets(self) -> None:
        for counter_set in (*self.sets, *self.beside):
            counter_set.close()
        self.on_turn()

    def close(self) -> None:
        self._close_sets()
        self.os.close()


def _read_request(directory: str) -> dict:
    if not directory:
        return {}
    try:
        with open(os.path.join(directory, FILE), encoding="utf-8") as file:
            return dict(json.load(file))
    except (OSError, ValueError, TypeError):
        return {}


def _kernel_release() -> tuple:
    """The version of the running kernel: (5, 13) for Linux `5.13.0-27-generic`."""
    parts = os.uname().release.split("-")[0].split(".")
    return tuple(int(part) if part.isdecimal() else 0 for part in parts[:2])


def _close_after_fork(counting: Counting) -> None:
    """Close the counters in a forked child: its copies of the descriptors count its parent."""
    reference = weakref.ref(counting)

    def after() -> None:
        alive = reference()
        if alive is not None:
            alive.close()

    os.register_at_fork(after_in_child=after)
