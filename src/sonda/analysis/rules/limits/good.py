"""Good: nothing needless was found, and the work runs at a decent part of what the machine can do."""

from __future__ import annotations

from sonda.analysis.rules import remedies
from sonda.analysis.rules.limit_findings import NothingNeedless
from sonda.analysis.rules.operations.evidence import OUTSIDE, TimedEvidence, TimedGroup, evidence_of
from sonda.analysis.rules.operations.small_operations import operation_work
from sonda.analysis.rules.program.between import share_of_steps
from sonda.analysis.rules.work import leading, pieces_of, works
from sonda.analysis.summary import Summary, Value, Verdict

DECENT = 0.2
"""Part of the step that its work takes at least, operation by operation at its roof: libraries reach half of a roof or
more with products of usual sizes, and steps spend two fifths of their time in such products or more."""
OWN = 0.8
"""Part of the step that forward, loss, backward and optimizer take: of the rest, neither input nor other code can take
more than twice what is worth a sentence."""
NETWORK = ("forward", "prefill", "decode", "fused", "loss", "backward", "optimizer")
PRODUCT = "product"
OPTIONS = 2
"""Ordinary options that are named."""


def rule(summary: Summary) -> Verdict | None:
    """Fires when the network itself takes four fifths of the step or more, the steps as much of the loop, and the work
    at the roof a fifth of the step.

    To be asked where no cause was found.
    """
    evidence = evidence_of(summary)
    if evidence is None or not evidence.step_ns:
        return None
    members, by_hand = works(evidence.part), _by_hand(evidence)
    least = sum((work.cost.roof.value or 0.0) * (work.cost.time.value or 0.0) for work in members)
    least += sum(min(operation_work(timed.group, summary.ceilings), timed.ns) for timed in by_hand)
    share = min(least / evidence.step_ns, 1.0)
    inside = sum(row.cost.time.value or 0.0 for row in evidence.part.phases if row.name in NETWORK)
    inside += sum(timed.ns for timed in by_hand)
    if share < DECENT or evidence.share(inside) < OWN or share_of_steps(summary) < OWN:
        return None
    of_roof = Value(share, "1", "derived")
    named = leading([work for work in members if work.cost.roof.value])
    options = remedies.remedies(summary, remedies.threads, remedies.channels_last, remedies.compiled, remedies.bfloat16)
    return Verdict(
        kind="good",
        finding=NothingNeedless(of_roof, pieces_of(named)),
        evidence={"of_roof": of_roof},
        remedies=options[:OPTIONS],
        share=share,
    )


def is_network(summary: Summary, verdict: Verdict) -> bool:
    """Whether a verdict speaks of code that is a part of the network itself, written as a function."""
    evidence = evidence_of(summary)
    if evidence is None or verdict.kind != "code" or verdict.place is None:
        return False
    return (verdict.place.file, verdict.place.function) in _functions_of(evidence)


def _by_hand(evidence: TimedEvidence) -> list[TimedGroup]:
    """What functions compute that multiply matrices outside of layers and phases: a forward without modules."""
    functions = _functions_of(evidence)
    return [timed for timed in _outside(evidence) if _function_at(evidence, timed.group.line) in functions]


def _functions_of(evidence: TimedEvidence) -> set[tuple[str, str]]:
    """File and name of these functions."""
    lines = {timed.group.line for timed in _outside(evidence) if timed.group.family == PRODUCT}
    return {_function_at(evidence, line) for line in lines}


def _outside(evidence: TimedEvidence) -> list[TimedGroup]:
    return [timed for timed in evidence.groups if timed.group.phase in OUTSIDE and timed.group.layer is None]


def _function_at(evidence: TimedEvidence, line: str) -> tuple[str, str]:
    return line.rpartition(":")[0], evidence.step.functions.get(line, "")
