"""Recompilation: a function is compiled again and again while the program runs.

Where the graph breaks within a function, it is a piece that is compiled by itself because of that: see `graph_breaks`.
"""

from __future__ import annotations

from sonda.analysis.rules.advice import Change, StableShapes, TryChange
from sonda.analysis.rules.cause_findings import CompiledAgain
from sonda.analysis.rules.operations.evidence import evidence_of
from sonda.analysis.rules.places import StepPlace
from sonda.analysis.rules.work import WORTH
from sonda.analysis.summary import Remedy, Summary, Value, Verdict
from sonda.record.evidence import CompiledFunction

FEWEST = 2
"""Times that a function was compiled again: once may be the step from one shape to any."""
BEHIND = "torch_dynamo_resume_in_"
"""Begin of the name that the compiler gives to what is left of a function behind a break."""
LONGEST = 40
"""Lines of a function of usual length."""


def rule(summary: Summary) -> Verdict | None:
    """Fires when compiling again took a tenth of the time of all steps or more."""
    found = summary.workload.compilations
    total = sum((part.total.value or 0.0) for part in summary.parts if part.total is not None)
    if found is None or not total:
        return None
    again = [function for function in compiled_again(summary) if not breaks_within(summary, function)]
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


def compiled_again(summary: Summary) -> list[CompiledFunction]:
    """Functions that were compiled again more often than going from one shape to any takes."""
    compilations = summary.workload.compilations
    functions = compilations.functions if compilations is not None else []
    return [function for function in functions if function.again and function.times > FEWEST]


def breaks_within(summary: Summary, function: CompiledFunction) -> bool:
    """Whether it goes on behind a break, or its graph breaks at one of its own lines: those behind its begin and before
    that of the next one."""
    compilations = summary.workload.compilations
    if compilations is None:
        return False
    if function.function.startswith(BEHIND):
        return True
    file, begin = _split(function.line)
    whole = [other for other in compilations.functions if not other.function.startswith(BEHIND)]
    begins = [own for other in whole for path, own in [_split(other.line)] if path == file]
    end = min((other for other in begins if other > begin), default=begin + LONGEST)
    lines = [line for stop in compilations.breaks for path, line in [_split(stop.line)] if path == file]
    return bool(begin) and any(begin <= line < min(end, begin + LONGEST) for line in lines)


def _split(place: str) -> tuple[str, int]:
    file, _, line = place.rpartition(":")
    return file, int(line) if line.isdigit() else 0
