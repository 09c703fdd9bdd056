"""The balance: follows how fast every rank is while it runs, and moves shares when that pays.

Every rank keeps the factor by which its steps take longer than its line says. Every few steps all ranks exchange their
factors and each computes the same new shares from the same numbers, so that nobody has to be told.

Ranks that share batch norms also wait for each other within a step, layer by layer, which no rank's own time tells:
what counts in the end is the step of all. So shares that made it longer are taken back, and the rank with fewest
samples gives some away on trial.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan
from statistics import median

from sonda.frameworks.torch.parallel.shares import Line, slowest, split_batch

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
NOTICED = 0.03
"""Share by which the measured step must have become longer before new shares are taken back, or shorter before those
on trial are kept."""
GIVEN = 2
"""Samples that are given away on trial at most."""
BEARABLE = 0.1
"""Share by which that may lengthen the step by the lines."""
ANOTHER, DOUBLE = 0.3, 2.0
"""A device is no longer what it was where the step with the old shares is longer by that share, or where its factor is
so many times what it was, or one of so many parts: a rank with a quota of time seems faster when it waits more."""
PATIENCE, LONGEST = 25, 100
"""Steps until what was in vain is done again; twice as many each time after that, up to the longest."""


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


class Patience:
    """When something may be done again that was in vain."""

    def __init__(self) -> None:
        self.until = 0
        self._steps = PATIENCE

    def lose(self, step: int) -> None:
        self.until, self._steps = step + self._steps, min(2 * self._steps, LONGEST)

    def regain(self, step: int) -> None:
        self.until, self._steps = step, PATIENCE


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
        self._lines, self._trials = Patience(), Patience()
        self._tried = self._lines
        """Which of them the last change was of."""
        self._factors: tuple[float, ...] = ()
        """When patience was lost."""

    def shares_at(self, step: int) -> tuple[int, ...]:
        """The shares in force at a step."""
        return next(change.shares for change in reversed(self.changes) if change.step <= step)

    def due(self, step: int) -> bool:
        """Whether factors are exchanged before this step."""
        return step > 0 and step % EVERY == 0

    def measured(self, steps: Sequence[float]) -> float:
        """s of a step with the shares in force, by those of all steps until now; 0 where there were too few. Those that
        are not a number are left out."""
        since = [one for one in steps[max(self.changes[-1].step, len(steps) - EVERY) :] if not isnan(one)]
        return median(since) if len(since) >= LEAST else 0.0

    def update(self, step: int, factors: Sequence[float], measured: float = 0.0) -> bool:
        """Move shares from this step on where that shortens it by more than `WORTHWHILE`, or back where it has made it
        longer; True where they moved.

        `measured` is what a step of all ranks took with the shares in force, s; 0 where that is not known.
        """
        if self._before is not None and not measured:
            return False  # the new shares are not in force for long enough
        before, self._before = self._before, None
        if before is not None:
            on_trial = self._tried is self._trials
            if measured > (1 - NOTICED if on_trial else 1 + NOTICED) * self._usual:
                self._tried.lose(step)
                self._factors = tuple(factors)
                return self._move(step, before.shares)
            self._tried.regain(step)
            if on_trial:  # which lines were against
                self._lines.lose(step)
                self._factors = tuple(factors)
        elif measured > (1 + ANOTHER) * self._usual or self._others(factors):
            self._lines.regain(step)
        lines = [line.scaled(factor) for line, factor in zip(self.lines, factors, strict=True)]
        better = split_batch(lines, self.batch) if step >= self._lines.until else self.shares
        self._tried = self._lines
        if slowest(lines, better) > (1 - WORTHWHILE) * slowest(lines, self.shares):
            better = self._given(lines) if measured and step >= self._trials.until else self.shares
            self._tried = self._trials
        if better == self.shares:
            return False
        if measured:
            self._before, self._usual = self.changes[-1], measured
        return self._move(step, better)

    def _others(self, factors: Sequence[float]) -> bool:
        """Whether a device has become much slower or faster since patience was lost."""
        ratios = [new / old for new, old in zip(factors, self._factors, strict=False)]
        return any(not 1 / DOUBLE < ratio < DOUBLE for ratio in ratios)

    def _given(self, lines: Sequence[Line]) -> tuple[int, ...]:
        """Shares of which the smallest gives to the largest as much as is bearable; those in force where none is."""
        smallest, largest = self.shares.index(min(self.shares)), self.shares.index(max(self.shares))
        for given in range(min(GIVEN, self.shares[smallest] - 1), 0, -1):
            tried = list(self.shares)
            tried[smallest] -= given
            tried[largest] += given
            if smallest != largest and slowest(lines, tried) <= (1 + BEARABLE) * slowest(lines, self.shares):
                return tuple(tried)
        return self.shares

    def _move(self, step: int, shares: tuple[int, ...]) -> bool:
        self.shares = shares
        self.changes.append(Change(step, shares))
        return True
