"""Counting: the counters of this process, opened before the framework starts its threads, read at every boundary.

The parent leaves `counting.json` in the collector's directory: `groups`, each a list of events (`name`, `type`,
`config`, and where needed `config1`, `config2`, `kernel`) that count together; `beside`, groups that are read at every
boundary along with the one in turn; `children`, whether child processes count; `layers`, whether layers are read too.
One group counts at a time and every step takes the next, so that the kernel never switches groups inside a phase.
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
"""Linux since which threads can be counted without child processes."""


class Counting:
    """Opens counters when it is made, with one group enabled; `define` makes them known to a recorder."""

    def __init__(self, directory: str, kernel: KernelCalls = LINUX) -> None:
        self._asked = _read_request(directory)
        self.children = bool(self._asked.get("children", False))
        self.layers = bool(self._asked.get("layers", True))
        """Whether layers are read, where there is anything to read."""
        self.on_turn: Callable[[], None] = lambda: None
        """Called when another group's turn has come."""
        self._kernel = kernel
        self._announced = False
        self._begin()
        _close_after_fork(self)

    def _begin(self) -> None:
        self.os = OsCounters(now(), self.children, self._kernel)
        self.sets: list = []
        self.beside: list = []
        self.state: dict = {}
        """What became of the groups that were asked for."""
        self._readers: list = []
        """For every group a reader of it, and one that also reads what the operating system counts."""
        self._turn = 0
        self._steps = 0
        if self._asked.get("groups"):
            self._open(self._asked)

    def begin_in_child(self, recorder: Recorder) -> None:
        """In a forked child, whose copies of its parent's counters are closed: count this process by itself.

        Where the parent's counters count its children too, these do not count themselves once more.
        """
        if not self._counts_children():
            self._begin()
            self.define(recorder)

    def _counts_children(self) -> bool:
        return self.children or _kernel_release() < THREADS_TOLD_APART

    def _open(self, asked: dict) -> None:
        try:
            for events in asked["groups"]:
                self.sets.append(CounterSet([Event(**event) for event in events], self.children, self._kernel))
            for events in asked.get("beside", ()):
                self.beside.append(CounterSet([Event(**event) for event in events], self.children, self._kernel))
            for one in (*self.beside, self.sets[0]):
                one.enable()
        except (OSError, TypeError) as error:
            self._close_sets()
            # The parent knows the machine, and says what this means.
            self.state = {"errno": getattr(error, "errno", 0) or 0, "event": getattr(error, "event", ""),
                          "message": str(error)}  # fmt: skip
            return
        everyone = [*self.sets, *self.beside]
        self.state = {"groups": len(self.sets), "threads": len(self.sets[0].groups),
                      "stable": all(one.stable for one in everyone)}  # fmt: skip

    @property
    def counts_layers(self) -> bool:
        return self.layers and bool(self.sets)

    def define(self, recorder: Recorder) -> None:
        """Make the counters known to this recorder, which keeps their readings from now on."""
        self.os.define(recorder)
        system = [] if self.os.set is None else [self.os.set]
        system_parts = [one.describe_reading(recorder, timed=False) for one in system]
        beside_parts = [one.describe_reading(recorder, timed=False, whole=False) for one in self.beside]
        for one in self.sets:
            sets = [one, *self.beside]
            parts = [one.describe_reading(recorder, whole=not self.beside), *beside_parts]
            self._readers.append((
                CounterReader(recorder, sets, parts), CounterReader(recorder, [*sets, *system], [*parts, *system_parts])
            ))  # fmt: skip
        if not self.sets:
            self._readers.append((CounterReader(recorder, [], []), CounterReader(recorder, system, system_parts)))

    @property
    def reader(self) -> CounterReader:
        """Reads the group in turn; nothing where none was asked for."""
        return self._readers[self._turn][0]

    @property
    def reader_with_os(self) -> CounterReader:
        """Reads the group in turn and what the operating system counts."""
        return self._readers[self._turn][1]

    def take(self, stream: Stream) -> int:
        """Keep a reading of the group in turn, and give the flag of the boundary at which it was taken."""
        return self._readers[self._turn][0].take(stream)

    def end_announced_step(self) -> None:
        """A step that the program itself announced is over; from now on only those count."""
        self._announced = True
        self._rotate()

    def note_steps(self, steps: int) -> None:
        """So many steps were found to be over; told between phases."""
        if steps != self._steps:
            self._steps = steps
            if not self._announced:
                self._rotate()

    def _rotate(self) -> None:
        """The next group counts."""
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
        """What the parent should know: where counts came from, and the counts of the whole process."""
        facts: dict[str, Any] = {"os": self.os.facts()}
        if self.state:
            facts["pmu"] = self.state
        if not self.children and self._counts_children():
            facts["children"] = True
        return {"counting": facts, "counted": self.totals()}

    def totals(self) -> dict:
        """Counts since the beginning, by name, of what counts all the time: of the groups, what every one has."""
        found = self.os.set.totals() if self.os.set is not None else {}
        everywhere = [one.totals() for one in self.sets]
        for name in everywhere[0] if everywhere else ():
            if all(name in one for one in everywhere):
                found[name] = sum(one[name] for one in everywhere)
        return found

    def _close_sets(self) -> None:
        for one in (*self.sets, *self.beside):
            one.close()
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
    """(5, 13) of Linux `5.13.0-27-generic`."""
    parts = os.uname().release.split("-")[0].split(".")
    return tuple(int(part) if part.isdecimal() else 0 for part in parts[:2])


def _close_after_fork(counting: Counting) -> None:
    """A forked child holds copies of descriptors that count its parent."""
    reference = weakref.ref(counting)

    def after() -> None:
        alive = reference()
        if alive is not None:
            alive.close()

    os.register_at_fork(after_in_child=after)
