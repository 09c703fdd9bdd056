"""Too noisy to judge: a step that is hardly known cannot be explained."""

from __future__ import annotations

import math

from sonda.analysis import wording
from sonda.analysis.rules.work import first_part
from sonda.analysis.summary import Remedy, Summary, Value, Verdict

TOO_NOISY = 0.5
"""Known to ±50 % only: the longest end of the interval is three times the shortest, and so is every share and rate."""


def rule(summary: Summary) -> Verdict | None:
    """Fires when the step is known to less than ±50 %; nothing else is then said of the run."""
    part = first_part(summary)
    if part is None or not math.isfinite(part.noise) or part.noise <= TOO_NOISY:
        return None
    low, high = part.step.low, part.step.high
    known = f"is known only to ±{wording.percent(part.noise)}"
    if part.noise > 1 and low is not None and high is not None:
        known = f"lasts anything from {wording.duration(low)} to {wording.duration(high)}"
    elif part.noise > 1:
        known = "is not known to a factor of two"
    return Verdict(
        kind="none",
        sentence=f"Too noisy to judge: the step {known}.",
        evidence={"noise": Value(part.noise, "1", "derived")},
        remedies=(Remedy("close other programs and measure again"),),
        share=1.0,
    )
