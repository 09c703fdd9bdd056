"""The processes of a program, as their files tell: what each did, how it did it, and which ended early."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sonda.frameworks.reconstruction.events import ProcessEvents
from sonda.frameworks.reconstruction.steps import StepSection


@dataclass
class Process:
    """One of them."""

    threads: int | None = None
    """Threads of one operation while it ran its network."""
    habits: dict[str, Any] = field(default_factory=dict)
    """Options that it has in use (`collector/habits.py`)."""
    loaders: dict[int, dict[str, Any]] = field(default_factory=dict)
    """How its data loaders load, by their numbers."""
    fed: Counter[tuple[str, int]] = field(default_factory=Counter)
    """Steps by part and by the loader that they had their data from."""
    waits: dict[str, int] = field(default_factory=dict)
    """How long a step of its training waits outside the phases (`collector/waits.py`)."""
    parts: set[tuple[int, str]] = field(default_factory=set)
    """Rank and part of its steps."""
    steps: int = 0
    stepping: int = 0
    """Threads that have steps."""
    begin: int = 0
    end: int = 0
    """Of its steps, ns."""

    @property
    def loads(self) -> dict[str, Any]:
        """How the loader loads that feeds its training, or its inference where it does not train.

        Where a loop of the framework's own stands between the two, the one that loads with the most workers.
        """
        trains = [one for one in self.fed if one[0] == "train"]
        most = max(trains or self.fed, key=lambda one: self.fed[one], default=("", -1))
        others = max(self.loaders.values(), key=lambda one: one.get("workers") or 0, default={})
        return self.loaders.get(most[1], others)


@dataclass
class Processes:
    """Told of one process after the other, and of the sections of each of its threads."""

    all: list[Process] = field(default_factory=list)
    unfinished: int = 0
    """Ended before they could write everything."""
    unstarted: int = 0
    """Ended after they had imported a framework and before they wrote anything that ran."""

    def add(self, events: ProcessEvents) -> None:
        """Another process begins, whose threads have not been taken yet."""
        loaders = {fact["loader"]: fact["loads"] for fact in events.facts if "loads" in fact}
        waits = events.fact("waits", {})
        self.all.append(Process(events.fact("threads"), events.fact("habits", {}), loaders, waits=waits))
        if events.truncated or not events.fact("finished", False):
            if events.threads:
                self.unfinished += 1
            else:
                self.unstarted += 1

    def add_sections(self, sections: Sequence[StepSection], rank: int) -> None:
        """A thread of the process that began last has these sections."""
        process = self.all[-1]
        process.stepping += any(section.steps for section in sections)
        for section in sections:
            if not section.steps:
                continue
            process.begin = min(process.begin, section.start) if process.steps else section.start
            process.end = max(process.end, section.end)
            process.steps += len(section.steps)
            process.parts.add((rank, section.part))
            process.fed.update((section.part, step.loader) for step in section.steps if step.loader is not None)

    @property
    def busiest(self) -> Process:
        """The one with the most steps: it speaks for the program."""
        return max(self.all, key=lambda one: one.steps, default=Process())

    def part_fed_by(self, loader: int) -> str:
        """The part whose steps have their data from this loader; '' for none."""
        steps = Counter({part: count for one in self.all for (part, fed), count in one.fed.items() if fed == loader})
        return steps.most_common(1)[0][0] if steps else ""

    @property
    def together(self) -> int:
        """Processes whose steps are in one part with those of another: they are of the same rank, or of none."""
        shared = Counter(part for one in self.all for part in one.parts)
        return sum(any(shared[part] > 1 for part in one.parts) for one in self.all)

    @property
    def at_once(self) -> int:
        """The most that stepped at the same time."""
        stepped = [one for one in self.all if one.steps]
        begun, ended = (sorted(times) for times in ((one.begin for one in stepped), (one.end for one in stepped)))
        # When one begins, those that began no later and have not ended step with it.
        return max((bisect_right(begun, at) - bisect_right(ended, at) for at in begun), default=0)
