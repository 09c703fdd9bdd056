"""Bounds: a ratio that cannot be larger than something, and whether its numbers keep to that.

Nothing is faster than a peak, longer than the whole it is a part of, or better shared than among all devices. Where
measured numbers say so all the same, one of them is wrong: a ceiling was measured too low, a formula counts too much,
the base was disturbed. Which one it is the ratio does not tell, so it is not shown, and its reason stands in its place.

A ratio **holds** where it is within its bounds. Its interval may reach beyond them: then it ends at the bound, because
the true ratio does. It is **at the bound** where the ratio is beyond and its interval, or what is not known of the
bound itself, reaches back to it: as far as can be told it is the bound. It is **broken** where nothing reaches back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum

from sonda.analysis import reasons
from sonda.analysis.summary import Value

ROUNDING = 1e-9
"""What sums of floating-point numbers may be off by, as a part of them."""
CEILINGS = 0.05
"""How far measured ceilings may be off, as a part of them: they are the best of several calls, and calls differ."""


class Judgement(Enum):
    """What became of a bound."""

    HOLDS = "holds"
    AT_BOUND = "at the bound"
    BROKEN = "broken"


@dataclass(frozen=True)
class BoundedRatio:
    """A ratio with its interval, and what it cannot be beyond."""

    ratio: Value
    most: float = 1.0
    least: float = 0.0
    doubt: float = 0.0
    """How far the bounds themselves may be off, as a part of them."""

    @property
    def judgement(self) -> Judgement:
        """Whether the bounds are kept; a ratio that is not known keeps them."""
        value = self.ratio.value
        if value is None or math.isnan(value) or self._low <= value <= self._high:
            return Judgement.HOLDS
        above = value > self.most
        nearest = self.ratio.low if above else self.ratio.high
        nearest = value if nearest is None else nearest
        low, high = self._low - self.doubt * abs(self.least), self._high + self.doubt * abs(self.most)
        # An interval that reaches across all that is possible reaches back too.
        return Judgement.AT_BOUND if (nearest <= high if above else nearest >= low) else Judgement.BROKEN

    @property
    def broken(self) -> bool:
        return self.judgement is Judgement.BROKEN

    def value(self, reason: str) -> Value:
        """The ratio within its bounds, its interval too; missing for `reason` where it broke them."""
        ratio = self.ratio
        if ratio.value is None or math.isnan(ratio.value):
            return ratio
        if self.broken:
            return Value(None, ratio.unit, ratio.source, reason=reason)
        low, high = (None if end is None else self._inside(end) for end in (ratio.low, ratio.high))
        return replace(ratio, value=self._inside(ratio.value), low=low, high=high)

    @property
    def _low(self) -> float:
        return self.least - ROUNDING * max(abs(self.least), 1.0)

    @property
    def _high(self) -> float:
        return self.most + ROUNDING * max(abs(self.most), 1.0)

    def _inside(self, number: float) -> float:
        return min(max(number, self.least), self.most)


def part_of_step(share: float) -> Value:
    """The part of a step that something takes, 0 to 1; missing where it is more, or not known."""
    known = Value(None if math.isnan(share) else share, "1", "derived")
    return BoundedRatio(known).value(reasons.LONGER_THAN_STEP)


def share_of(part: Value, whole: Value) -> BoundedRatio:
    """A part of a whole, 0 to 1: its ends are those of the part over those of the whole, the other way round."""
    if part.value is None or not whole.value:
        return BoundedRatio(
            Value(None, "1", "derived", reason=part.reason or whole.reason or reasons.NOTHING_TO_DIVIDE_BY)
        )
    ends = None not in (part.low, part.high)
    lows = (part.low, whole.high or whole.value) if ends else (None, None)
    highs = (part.high, whole.low or whole.value) if ends else (None, None)
    return BoundedRatio(
        Value(
            part.value / whole.value,
            "1",
            "derived",
            lows[0] / lows[1] if lows[0] is not None and lows[1] else None,
            highs[0] / highs[1] if highs[0] is not None and highs[1] else None,
            few=part.few or whole.few,
        )
    )
