"""Good: nothing needless was found, and the work runs at a decent part of what the machine can do."""

from __future__ import annotations

from sonda.analysis.rules import remedies
from sonda.analysis.rules.limit_findings import NothingNeedless
from sonda.analysis.rules.operations.evidence import evidence_of
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
    members = works(evidence.part)
    least = sum((work.cost.roof.value or 0.0) * (work.cost.time.value or 0.0) for work in members)
    share = min(least / evidence.step_ns, 1.0)
    inside = sum(row.cost.time.value or 0.0 for row in evidence.part.phases if row.name in NETWORK)
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
