"""Too noisy to judge: a step that is hardly known cannot be explained."""

from __future__ import annotations

import math

from sonda.analysis.rules.advice import Change, TryChange
from sonda.analysis.rules.limit_findings import TooNoisy
from sonda.analysis.rules.work import first_part
from sonda.analysis.summary import Remedy, Summary, Value, Verdict

TOO_NOISY = 0.5
"""Known to ±50 % only: the longest end of the interval is three times the shortest, and so is every share and rate."""


def rule(summary: Summary) -> Verdict | None:
    """Fires when the step is known to less than ±50 %; nothing else is then said of the run."""
    part = first_part(summary)
    if part is None or not math.isfinite(part.noise) or part.noise <= TOO_NOISY:
        return None
    noise = Value(part.noise, "1", "derived")
    return Verdict(
        kind="noisy",
        finding=TooNoisy(noise, part.step),
        evidence={"noise": noise},
        remedies=(Remedy(TryChange(Change.CLOSE_PROGRAMS)),),
        share=1.0,
    )
