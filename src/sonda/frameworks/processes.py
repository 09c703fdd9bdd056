"""The processes of a program, as their files tell: which of them stepped in the same part, and which ended early."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sonda.frameworks.events import ProcessEvents
from sonda.frameworks.steps import Section


@dataclass
class Processes:
    """Told of one process after the other, and of the sections of each of its threads."""

    count: int = 0
    unfinished: int = 0
    """Ended before they could write everything."""
    unstarted: int = 0
    """Ended after they had imported a framework and before they wrote anything that ran."""
    _stepped: dict[tuple[int, str], set[int]] = field(default_factory=dict)
    """By rank and part: numbers of the processes that stepped there."""

    def add(self, events: ProcessEvents) -> None:
        """Another process begins, whose threads have not been taken yet."""
        self.count += 1
        if events.truncated or not events.fact("finished", False):
            if events.threads:
                self.unfinished += 1
            else:
                self.unstarted += 1

    def add_sections(self, sections: Sequence[Section], rank: int) -> None:
        """A thread of the process that began last has these sections."""
        for section in sections:
            if section.steps:
                self._stepped.setdefault((rank, section.part), set()).add(self.count)

    @property
    def together(self) -> int:
        """Processes whose steps are in one part with those of another: they are of the same rank, or of none."""
        return len(set().union(*(one for one in self._stepped.values() if len(one) > 1)))
