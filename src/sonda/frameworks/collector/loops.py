"""Loops of a framework's own around steps: `fit`, `evaluate` and `predict` know what a step cannot tell by itself."""

from __future__ import annotations

from .recorder import Recorder

PART = {"train": 1, "validate": 2, "test": 3}
"""As the reader of the events numbers parts."""
FIRST = 1 << 32
"""Loops are numbered from here on: data sets that a program walks through itself have smaller numbers."""


class RunningLoop:
    """One loop that is running."""

    def __init__(self, name: str, part: str, number: int) -> None:
        self.name = name
        """train, test or predict, as Keras calls it."""
        self.part = part
        self.loader = self.iterator = number
        """Where batches come from, and which walk through them this is: numbers that no other has."""
        self.introduced = False
        """Whether it was said how they are made."""


class RunningLoops:
    """The loops that are running, the innermost last. `said` goes into every phase, whichever observer writes it."""

    def __init__(self, recorder: Recorder) -> None:
        self.running: list = []
        self._last = FIRST
        names = ("of_part", "loader", "iterator")
        self._values = tuple(recorder.define(kind="value", quantity=name, source="counted") for name in names)

    def begin(self, name: str, part: str) -> None:
        """A loop begins. A test inside a training is a validation."""
        if part == "train":
            self.running.clear()  # a loop that an exception ended said nothing
        self.running.append(RunningLoop(name, "validate" if part == "test" and self.running else part, self._number()))

    def end(self) -> None:
        if self.running:
            self.running.pop()

    def begin_epoch(self) -> None:
        """The innermost loop begins another walk through its data."""
        if self.running:
            self.running[-1].iterator = self._number()

    def _number(self) -> int:
        self._last += 1
        return self._last

    def phase_values(self) -> tuple:
        """What the innermost loop says of a phase, as values; nothing without one."""
        if not self.running:
            return ()
        loop = self.running[-1]
        part, loader, iterator = self._values
        return part, PART[loop.part], loader, loop.loader, iterator, loop.iterator
