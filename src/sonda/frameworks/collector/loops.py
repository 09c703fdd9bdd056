"""Loops that a framework runs around steps: `fit`, `evaluate` and `predict` know which part a step belongs to."""

from __future__ import annotations

from .recorder import Recorder

PART = {"train": 1, "validate": 2, "test": 3}
"""Numbers of the parts, as the reader of the events expects them."""
FIRST = 1 << 32
"""The first number of a loop. Data sets over which a program iterates itself have smaller numbers."""


class RunningLoop:
    """One loop that is running."""

    def __init__(self, name: str, part: str, number: int) -> None:
        self.name = name
        """train, test or predict, as Keras calls it."""
        self.part = part
        self.loader = self.iterator = number
        """Numbers of the source of the batches and of this pass over them. No other loop has them."""
        self.introduced = False
        """Whether the source of the batches was described already."""


class RunningLoops:
    """The loops that are running, the innermost last. Every observer adds `phase_values` to its phases."""

    def __init__(self, recorder: Recorder) -> None:
        self.running: list = []
        self._last = FIRST
        names = ("of_part", "loader", "iterator")
        self._values = tuple(recorder.define(kind="value", quantity=name, source="counted") for name in names)

    def begin(self, name: str, part: str) -> None:
        """A loop begins. A test inside a training is a validation."""
        if part == "train":
            self.running.clear()  # an exception may have ended a loop without a call of `end`
        self.running.append(RunningLoop(name, "validate" if part == "test" and self.running else part, self._number()))

    def end(self) -> None:
        if self.running:
            self.running.pop()

    def begin_epoch(self) -> None:
        """The innermost loop begins another pass over its data."""
        if self.running:
            self.running[-1].iterator = self._number()

    def _number(self) -> int:
        self._last += 1
        return self._last

    def phase_values(self) -> tuple:
        """Codes and values of what the innermost loop knows of a phase; () where no loop is running."""
        if not self.running:
            return ()
        loop = self.running[-1]
        part, loader, iterator = self._values
        return part, PART[loop.part], loader, loop.loader, iterator, loop.iterator
