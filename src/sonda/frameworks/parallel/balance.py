"""The balance: follows how fast every rank is while it runs, and moves shares when that pays.

Every rank keeps the factor by which its steps take longer than its line says. Every few steps all ranks exchange their
factors and each computes the same new shares from the same numbers, so that nobody has to be told.

Ranks that share batch norms also wait for each other within a step, layer by layer, which no rank's own time tells:
what counts in the end is the step of all. So shares that made it longer are taken back, and a sample more or less is
tried.
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
TRIED = 0.1
"""Share of the step by which a sample more or less may lengthen it by the lines, to be tried all the same."""
RATHER = 0.01
"""Share of the measured step that other shares must have saved before they are preferred."""
ANOTHER = 0.2
"""Share by which a factor changes when a device is no longer what it was: what was measured before is forgotten."""


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
        self._steps: dict[tuple[int, ...], float] = {}
        """s of a step of all ranks, by shares, as measured."""
        self._factors: tuple[float, ...] = ()
        """Those with which these were measured."""

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
        """Other shares from this step on where that shortens it; True where they moved.

        By the lines it must be shorter by more than `WORTHWHILE`. `measured` is what a step of all ranks took with the
        shares in force, s; 0 where that is not known, and then only lines count.
        """
        lines = [line.scaled(factor) for line, factor in zip(self.lines, factors, strict=True)]
        changed = [abs(new - old) > ANOTHER * old for new, old in zip(factors, self._factors, strict=False)]
        if any(changed) or not self._factors:
            self._factors = tuple(factors)
            self._steps.clear()
        if measured:
            self._steps[self.shares] = measured
        better = split_batch(lines, self.batch)
        if slowest(lines, better) > (1 - WORTHWHILE) * slowest(lines, self.shares) or better in self._steps:
            better = self._by_steps(lines) if measured else self.shares
        if better == self.shares:
            return False
        self.shares = better
        self.changes.append(Change(step, better))
        return True

    def _by_steps(self, lines: Sequence[Line]) -> tuple[int, ...]:
        """Shares by what steps took: the best until now, or next to those in force where that was not tried yet."""
        best = min(self._steps, key=lambda shares: self._steps[shares])
        if self._steps[best] < (1 - RATHER) * self._steps[self.shares]:
            return best
        times = [line.time(share) for line, share in zip(lines, self.shares, strict=True)]
        ends = times.index(max(times)), times.index(min(times))
        for giver, taker in (ends, ends[::-1]):
            tried = list(self.shares)
            tried[giver] -= 1
            tried[taker] += 1
            bearable = slowest(lines, tried) <= (1 + TRIED) * max(times)
            if tried[giver] and bearable and tuple(tried) not in self._steps:
                return tuple(tried)
        return self.shares
