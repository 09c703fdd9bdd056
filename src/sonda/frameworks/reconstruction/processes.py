"""The processes of a program, from their files: their steps, their settings, and which ended early."""

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
    """One process of a program."""

    threads: int | None = None
    """Threads of one operation while it ran its network."""
    habits: dict[str, Any] = field(default_factory=dict)
    """Options of PyTorch that it uses (`torch/observe/options.py`)."""
    loaders: dict[int, dict[str, Any]] = field(default_factory=dict)
    """How its data loaders load, by their numbers."""
    fed: Counter[tuple[str, int]] = field(default_factory=Counter)
    """Number of steps by part and by the loader that gave their data."""
    waits: dict[str, int] = field(default_factory=dict)
    """How long a step of its training waits outside the phases (`collector/sampling/waits.py`)."""
    thread_times: dict[str, int] = field(default_factory=dict)
    """How long its threads ran and waited for a processor (`collector/counters/system.py`)."""
    parts: set[tuple[int, str]] = field(default_factory=set)
    """Ranks and parts of its steps."""
    steps: int = 0
    stepping: int = 0
    """Number of threads that have steps."""
    begin: int = 0
    end: int = 0
    """Begin of its first and end of its last step, ns."""

    @property
    def loads(self) -> dict[str, Any]:
        """How the loader of its training loads, or of its inference where it does not train.

        Where a loop of the framework hides which loader that is, the loader with the most workers.
        """
        training = [part_and_loader for part_and_loader in self.fed if part_and_loader[0] == "train"]
        _, loader = max(training or self.fed, key=lambda part_and_loader: self.fed[part_and_loader], default=("", -1))
        otherwise = max(self.loaders.values(), key=lambda options: options.get("workers") or 0, default={})
        return self.loaders.get(loader, otherwise)


@dataclass
class Processes:
    """All processes of a program. Call `add` for each, and `add_sections` for each of its threads."""

    all: list[Process] = field(default_factory=list)
    unfinished: int = 0
    """How many were killed before they could write everything."""
    unstarted: int = 0
    """How many were killed after they imported a framework and before they recorded anything."""

    def add(self, events: ProcessEvents) -> None:
        """Add a process, before its threads are read."""
        loaders = {fact["loader"]: fact["loads"] for fact in events.facts if "loads" in fact}
        waits, times = events.fact("waits", {}), events.fact("thread_times", {})
        habits = events.fact("habits", {})
        self.all.append(Process(events.fact("threads"), habits, loaders, waits=waits, thread_times=times))
        if events.truncated or not events.fact("finished", False):
            if events.threads:
                self.unfinished += 1
            else:
                self.unstarted += 1

    def add_sections(self, sections: Sequence[StepSection], rank: int) -> None:
        """Add the sections of a thread of the process that was added last."""
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
        """The process with the most steps, which represents the program."""
        return max(self.all, key=lambda process: process.steps, default=Process())

    def part_fed_by(self, loader: int) -> str:
        """The part whose steps have their data from this loader; '' for none."""
        steps = Counter(
            {part: count for process in self.all for (part, fed), count in process.fed.items() if fed == loader}
        )
        return steps.most_common(1)[0][0] if steps else ""

    @property
    def together(self) -> int:
        """How many processes share a part with another process of the same rank."""
        shared = Counter(part for process in self.all for part in process.parts)
        return sum(any(shared[part] > 1 for part in process.parts) for process in self.all)

    @property
    def at_once(self) -> int:
        """The most processes that had steps at the same time."""
        stepping = [process for process in self.all if process.steps]
        begun = sorted(process.begin for process in stepping)
        ended = sorted(process.end for process in stepping)
        # When a process begins, those that began no later and have not ended run with it.
        return max((bisect_right(begun, at) - bisect_right(ended, at) for at in begun), default=0)
