"""Good: nothing needless was found, and the work runs at a decent part of what the machine can do."""

from __future__ import annotations

from sonda.analysis.rules import remedies
from sonda.analysis.rules.evidence import evidence_of
from sonda.analysis.rules.limits import NothingNeedless
from sonda.analysis.rules.work import leading, pieces_of, works
from sonda.analysis.summary import Summary, Value, Verdict

DECENT = 0.4
"""Part of the step that its work takes at least, operation by operation at its roof. Libraries reach 60 to 90 % of a
peak with products of usual sizes; what is around them takes a part of the step in any program."""
OPTIONS = 2
"""Ordinary options that are named."""


def rule(summary: Summary) -> Verdict | None:
    """Fires when the least time of the work on this machine is four tenths of the step or more. To be asked where no
    cause was found."""
    evidence = evidence_of(summary)
    if evidence is None or not evidence.step_ns:
        return None
    members = works(evidence.part)
    least = sum((work.cost.roof.value or 0.0) * (work.cost.time.value or 0.0) for work in members)
    share = min(least / evidence.step_ns, 1.0)
    if share < DECENT:
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
