"""Whether a slowdown is above a limit, and how many repetitions would tell where these do not."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sonda.analysis.statistics import repetitions_to_tell
from sonda.analysis.summary import Value

SLOWER, WITHIN, UNCLEAR = "slower", "within", "unclear"
EXIT_CODES = {WITHIN: 0, SLOWER: 1, UNCLEAR: 3}
"""Of `sonda compare --fail-above`; 2 is a mistake, as everywhere."""


@dataclass(frozen=True)
class Variation:
    """How much the repetitions of one side differ from each other."""

    deviation: float
    """Standard deviation of one repetition over its mean; of one process alone what its steps leave open, which is the
    least that processes can differ by."""
    count: int
    """Repetitions that there are."""


@dataclass(frozen=True)
class LimitCheck:
    """A slowdown beside a limit, and whether it is above it."""

    limit: float
    """0.05 for 5 %."""
    slowdown: Value
    outcome: str
    """`slower` or `within`, with 95 % confidence; else `unclear`."""
    repetitions: int | None = None
    """Of each side that would tell, four times in five. None where the outcome is clear, where more than 100 would be
    needed, and where it is not known how they vary."""
    at_least: bool = False
    """Whether more may be needed, because a side has one repetition, which does not show how they differ."""

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.outcome]


def check_limit(
    slowdown: Value, limit: float, variations: tuple[Variation, ...], efficiency: float = 1.0
) -> LimitCheck:
    """The slowdown against the limit: clear where its interval lies on one side of it.

    Repetitions are asked for by `repetitions_to_tell`: as many as tell the measured slowdown from the limit, or none at
    all from the limit where the two are nearer than that. What lies as near to the limit as noise carried it would ask
    for thousands (Hoenig and Heisey 2001, Am. Stat. 55, 19). `efficiency` is that of the middle that is compared.
    """
    if slowdown.low is not None and slowdown.low > limit:
        return LimitCheck(limit, slowdown, SLOWER)
    if slowdown.high is not None and slowdown.high <= limit:
        return LimitCheck(limit, slowdown, WITHIN)
    if slowdown.value is None or not -1 < slowdown.value < math.inf or not variations:
        return LimitCheck(limit, slowdown, UNCLEAR)
    edge = math.log1p(limit)
    distance = max(edge, abs(math.log1p(slowdown.value) - edge))
    deviations = [variation.deviation for variation in variations]
    more = max(variation.count for variation in variations) + 1
    wanted = repetitions_to_tell(deviations, distance, efficiency)
    return LimitCheck(
        limit, slowdown, UNCLEAR, None if wanted is None else max(wanted, more),
        at_least=any(variation.count == 1 for variation in variations),
    )  # fmt: skip
