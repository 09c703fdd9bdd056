"""The balance: follows how fast every rank is while it runs, and moves shares when that pays.

Every rank keeps the factor by which its steps take longer than its line says. Every few steps all ranks exchange their
factors and each computes the same new shares from the same numbers, so that nobody has to be told.

Ranks that share batch norms also wait for each other within a step, layer by layer, which no rank's own time tells:
what counts in the end is the step of all. So shares that made it longer are taken back.
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
LEAST = 3
"""Steps with the same shares, at least, whose median counts."""
LONGER = 0.03
"""Share by which the measured step must have become longer before new shares are taken back."""
ANOTHER = 0.3
"""Share by which the step with the old shares must be longer than it was, for a device to be no longer what it was."""
PATIENCE = 25
"""Steps until lines are listened to again when shares were taken back, twice as many each time after that."""


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
    """The shares in force. All ranks hold equal ones as long as they are given equal numbers at equal steps."""

    def __init__(self, lines: Sequence[Line], batch: int, shares: Sequence[int] | None = None) -> None:
        self.lines = tuple(lines)
        self.batch = batch
        self.shares = tuple(shares) if shares is not None else split_batch(self.lines, batch)
        self.changes = [Change(0, self.shares)]
        self._before: Change | None = None
        """What was in force before the last change, until it is known whether that was good."""
        self._usual = 0.0
        """s of a step with the shares that were in force then, or were come back to."""
        self._until = 0
        """The step before which shares stay."""
        self._patience = PATIENCE

    def shares_at(self, step: int) -> tuple[int, ...]:
        """The shares in force at a step."""
        return next(change.shares for change in reversed(self.changes) if change.step <= step)

    def due(self, step: int) -> bool:
        """Whether factors are exchanged before this step."""
        return step > 0 and step % EVERY == 0

    def measured(self, steps: Sequence[float]) -> float:
        """s of a step with the shares in force, by those of all steps until now; 0 where there were too few."""
        since = steps[max(self.changes[-1].step, len(steps) - EVERY) :]
        return median(since) if len(since) >= LEAST else 0.0

    def update(self, step: int, factors: Sequence[float], measured: float = 0.0) -> bool:
        """Move shares from this step on where that shortens it by more than `WORTHWHILE`, or back where it has made it
        longer; True where they moved.

        `measured` is what a step of all ranks took with the shares in force, s; 0 where that is not known.
        """
        if self._before is not None and not measured:
            return False  # the new shares are not in force for long enough
        before, self._before = self._before, None
        if before is not None and measured > (1 + LONGER) * self._usual:
            self._until = step + self._patience
            self._patience *= 2
            return self._move(step, before.shares)
        if before is not None or measured > (1 + ANOTHER) * self._usual:
            self._until, self._patience = step, PATIENCE
        if step < self._until:
            return False
        lines = [line.scaled(factor) for line, factor in zip(self.lines, factors, strict=True)]
        better = split_batch(lines, self.batch)
        if slowest(lines, better) > (1 - WORTHWHILE) * slowest(lines, self.shares):
            return False
        if measured:
            self._before, self._usual = self.changes[-1], measured
        return self._move(step, better)

    def _move(self, step: int, shares: tuple[int, ...]) -> bool:
        self.shares = shares
        self.changes.append(Change(step, shares))
        return True
