"""Whether a slowdown is above a limit."""

from __future__ import annotations

from dataclasses import dataclass

from sonda.analysis.summary import Value

SLOWER, WITHIN, UNCLEAR = "slower", "within", "unclear"


@dataclass(frozen=True)
class LimitCheck:
    """A slowdown held against a limit."""

    limit: float
    """0.05 for 5 %."""
    slowdown: Value
    outcome: str
    """`slower` or `within`, with 95 % confidence; else `unclear`."""


def check_limit(slowdown: Value, limit: float) -> LimitCheck:
    """The slowdown against the limit: clear where its interval lies on one side of it."""
    if slowdown.low is not None and slowdown.low > limit:
        return LimitCheck(limit, slowdown, SLOWER)
    if slowdown.high is not None and slowdown.high <= limit:
        return LimitCheck(limit, slowdown, WITHIN)
    return LimitCheck(limit, slowdown, UNCLEAR)
