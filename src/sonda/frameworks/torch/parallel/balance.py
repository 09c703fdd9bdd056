"""The balance: follows how fast every rank is while it runs, and moves shares when that pays.

Every rank tracks the factor by which its steps take longer than its line predicts. Every few steps all ranks exchange
their factors. Each computes the same new shares from the same numbers, so nobody has to send the result.

Ranks that share batch norms also wait for each other within a step, layer by layer. No rank's own time shows that; only
the step of all ranks does. So shares that made the step longer are taken back, and now and then the rank with fewest
samples gives some away on trial.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan
from statistics import median

from sonda.frameworks.torch.parallel.shares import Line, slowest_time, split_batch

EVERY = 5
"""Steps between two exchanges of factors: a change of speed is noticed after at most so many steps."""
WEIGHT = 0.5
"""Weight of the newest step in the moving average: five steps after a change the average holds 97 % of it."""
MEDIAN_OF = 3
"""Steps whose median enters the average: a single slow step of a busy machine changes nothing."""
WORTHWHILE = 0.05
"""Fraction of the step that new shares must save. Smaller gains are ignored, so that noise does not move shares."""
FEWEST_STEPS = 3
"""Fewest steps with the same shares whose median counts."""
NOTICED = 0.03
"""Fraction by which the measured step must get longer before new shares are taken back. Shares on trial stay only where
the step gets shorter by this fraction."""
MOST_GIVEN = 2
"""Most samples that a rank gives away on trial."""
BEARABLE = 0.1
"""Fraction by which a trial may lengthen the step, as the lines predict it."""
MUCH_LONGER, DOUBLE = 0.3, 2.0
"""A device counts as changed where the step with unchanged shares got longer by the first fraction, or where its factor
doubled or halved. The threshold is that wide because a rank with a quota of time seems faster when it waits more."""
PATIENCE, LONGEST = 25, 100
"""Steps until a move that did not help is tried again. The pause doubles each time, up to the second number."""


class Pace:
    """How much longer than predicted the steps of one rank take: 1 is as predicted, 3 is three times as long."""

    def __init__(self) -> None:
        self.factor = 1.0
        self._recent: deque[float] = deque(maxlen=MEDIAN_OF)

    def record_step(self, seconds: float, predicted: float) -> None:
        """Take in the time of a step, without its waiting for others, and the time that was predicted for it."""
        self._recent.append(seconds / predicted)
        self.factor += WEIGHT * (median(self._recent) - self.factor)


@dataclass(frozen=True)
class StepShares:
    """The shares in force from a step on, as a run keeps them."""

    step: int
    shares: tuple[int, ...]


class Patience:
    """The step from which a kind of move that did not help may be tried again."""

    def __init__(self) -> None:
        self.until = 0
        self._steps = PATIENCE

    def lose(self, step: int) -> None:
        """A move at this step did not help: pause, and pause longer the next time."""
        self.until, self._steps = step + self._steps, min(2 * self._steps, LONGEST)

    def regain(self, step: int) -> None:
        """A move helped, or the devices changed: allow the next one at once."""
        self.until, self._steps = step, PATIENCE


class Balance:
    """The shares in force. They are equal on all ranks as long as all give it equal numbers at equal steps."""

    def __init__(self, lines: Sequence[Line], batch: int, shares: Sequence[int] | None = None) -> None:
        self.lines = tuple(lines)
        self.batch = batch
        self.shares = tuple(shares) if shares is not None else split_batch(self.lines, batch)
        self.changes = [StepShares(0, self.shares)]
        self._previous: StepShares | None = None
        """The change before the last one, until the last one has proved itself."""
        self._previous_step = 0.0
        """Step time with the shares of `_previous`, s."""
        self._line_patience, self._trial_patience = Patience(), Patience()
        self._last_patience = self._line_patience
        """The patience that the last change drew on."""
        self._factors: tuple[float, ...] = ()
        """The factors of all ranks when patience was last lost."""

    def shares_at(self, step: int) -> tuple[int, ...]:
        """The shares in force at a step."""
        return next(change.shares for change in reversed(self.changes) if change.step <= step)

    def is_due(self, step: int) -> bool:
        """Whether factors are exchanged before this step."""
        return step > 0 and step % EVERY == 0

    def measured_step(self, steps: Sequence[float]) -> float:
        """Median time of the last steps with the shares in force, s; 0 where there were too few.

        `steps` are the times of all steps until now. Steps that are NaN are left out.
        """
        recent = steps[max(self.changes[-1].step, len(steps) - EVERY) :]
        valid = [seconds for seconds in recent if not isnan(seconds)]
        return median(valid) if len(valid) >= FEWEST_STEPS else 0.0

    def update(self, step: int, factors: Sequence[float], measured: float = 0.0) -> bool:
        """Move shares from this step on where that shortens it by more than `WORTHWHILE`.

        The last move is undone where it made the step longer. `measured` is the step time of all ranks with the shares
        in force, s; 0 where it is not known. Returns whether shares moved.
        """
        if self._previous is not None and not measured:
            return False  # too few steps with the new shares
        previous, self._previous = self._previous, None
        if previous is not None:
            on_trial = self._last_patience is self._trial_patience
            if measured > (1 - NOTICED if on_trial else 1 + NOTICED) * self._previous_step:
                self._last_patience.lose(step)
                self._factors = tuple(factors)
                return self._move(step, previous.shares)
            self._last_patience.regain(step)
            if on_trial:  # the lines had predicted a longer step
                self._line_patience.lose(step)
                self._factors = tuple(factors)
        elif measured > (1 + MUCH_LONGER) * self._previous_step or self._devices_changed(factors):
            self._line_patience.regain(step)
        lines = [line.scaled(factor) for line, factor in zip(self.lines, factors, strict=True)]
        better = split_batch(lines, self.batch) if step >= self._line_patience.until else self.shares
        self._last_patience = self._line_patience
        if slowest_time(lines, better) > (1 - WORTHWHILE) * slowest_time(lines, self.shares):
            better = self._trial_shares(lines) if measured and step >= self._trial_patience.until else self.shares
            self._last_patience = self._trial_patience
        if better == self.shares:
            return False
        if measured:
            self._previous, self._previous_step = self.changes[-1], measured
        return self._move(step, better)

    def _devices_changed(self, factors: Sequence[float]) -> bool:
        """Whether a device got much slower or faster since patience was lost."""
        ratios = [new / old for new, old in zip(factors, self._factors, strict=False)]
        return any(not 1 / DOUBLE < ratio < DOUBLE for ratio in ratios)

    def _trial_shares(self, lines: Sequence[Line]) -> tuple[int, ...]:
        """Shares on trial: the smallest gives to the largest as much as `MOST_GIVEN` and `BEARABLE` allow.

        Returns the shares in force where that is nothing.
        """
        smallest, largest = self.shares.index(min(self.shares)), self.shares.index(max(self.shares))
        for samples in range(min(MOST_GIVEN, self.shares[smallest] - 1), 0, -1):
            tried = list(self.shares)
            tried[smallest] -= samples
            tried[largest] += samples
            if smallest != largest and slowest_time(lines, tried) <= (1 + BEARABLE) * slowest_time(lines, self.shares):
                return tuple(tried)
        return self.shares

    def _move(self, step: int, shares: tuple[int, ...]) -> bool:
        self.shares = shares
        self.changes.append(StepShares(step, shares))
        return True
