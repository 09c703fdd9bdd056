"""Recompilation: a function is compiled again and again while the program runs."""

from __future__ import annotations

from sonda.analysis.rules.advice import Change, StableShapes, TryChange
from sonda.analysis.rules.cause_findings import CompiledAgain
from sonda.analysis.rules.operations.evidence import evidence_of
from sonda.analysis.rules.places import StepPlace
from sonda.analysis.rules.work import WORTH
from sonda.analysis.summary import Remedy, Summary, Value, Verdict

FEWEST = 2
"""Times that a function was compiled again: once may be the step from one shape to any."""


def rule(summary: Summary) -> Verdict | None:
    """Fires when compiling again took a tenth of the time of all steps or more."""
    found = summary.workload.compilations
    total = sum((part.total.value or 0.0) for part in summary.parts if part.total is not None)
    if found is None or not total:
        return None
    again = [function for function in found.functions if function.again and function.times > FEWEST]
    spent = 1e9 * sum(float(function.again) for function in again)
    share = min(spent / max(total, spent), 1.0)
    if not again or share < WORTH:
        return None
    worst = max(again, key=lambda function: function.again)
    evidence = evidence_of(summary)
    called = evidence.step.line if evidence is not None else ""
    place = StepPlace(line=called or worst.line)
    of_time, time = Value(share, "1", "derived"), Value(spent, "ns", "measured")
    return Verdict(
        kind="recompilation",
        finding=CompiledAgain(of_time, time, place, worst.function, worst.times, worst.reason),
        evidence={"share": of_time, "time": time, "times": Value(float(worst.times), "1", "counted")},
        remedies=(Remedy(StableShapes(place)), Remedy(TryChange(Change.COMPILE_ONCE))),
        share=share,
    )
