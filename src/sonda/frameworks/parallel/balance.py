"""The balance: follows how fast every rank is while it runs, and moves shares when that pays.

Every rank keeps the factor by which its steps take longer than its line says. Every few steps all ranks exchange their
factors and each computes the same new shares from the same numbers, so that nobody has to be told.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from sonda.frameworks.parallel.shares import Line, slowest, split_batch

EVERY = 5
"""Steps between two exchanges: a change is seen after at most so many steps."""
WEIGHT = 0.5
"""Of the newest step in the moving average: five steps after a change it holds 97 % of it."""
HICCUP = 3
"""Steps whose median is averaged: a single slow step of a busy machine moves nothing."""
WORTHWHILE = 0.05
"""Share of the step that a change must save. Below it shares stay, so that noise does not move them to and fro."""


class Pace:
    """How much longer than foreseen the steps of one rank take: 1 is as foreseen, 3 three times as long."""

    def __init__(self) -> None:
        self.factor = 1.0
        self._recent: deque[float] = deque(maxlen=HICCUP)

    def took(self, seconds: float, foreseen: float) -> None:
        """A step took so long, without the time it waited for others."""
        self._recent.append(seconds / foreseen)
        self.factor += WEIGHT * (median(self._recent) - self.factor)


@dataclass(frozen=True)
class Change:
    """Shares from a step on, as kept in a run."""

    step: int
    shares: tuple[int, ...]


class Balance:
    """The shares in force. All ranks hold equal ones as long as they are given equal factors at equal steps."""

    def __init__(self, lines: Sequence[Line], batch: int, shares: Sequence[int] | None = None) -> None:
        self.lines = tuple(lines)
        self.batch = batch
        self.shares = tuple(shares) if shares is not None else split_batch(self.lines, batch)
        self.changes = [Change(0, self.shares)]

    def shares_at(self, step: int) -> tuple[int, ...]:
        """The shares in force at a step."""
        return next(change.shares for change in reversed(self.changes) if change.step <= step)

    def due(self, step: int) -> bool:
        """Whether factors are exchanged before this step."""
        return step > 0 and step % EVERY == 0

    def update(self, step: int, factors: Sequence[float]) -> bool:
        """Move shares from this step on where that shortens it by more than `WORTHWHILE`; True where they moved."""
        lines = [line.scaled(factor) for line, factor in zip(self.lines, factors, strict=True)]
        better = split_batch(lines, self.batch)
        if slowest(lines, better) > (1 - WORTHWHILE) * slowest(lines, self.shares):
            return False
        self.shares = better
        self.changes.append(Change(step, better))
        return True
