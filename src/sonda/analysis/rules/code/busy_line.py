"""Own code: functions outside of phases take a share of the step, and nothing tells what they are for."""

from __future__ import annotations

from sonda.analysis.code.summary import OTHER, CodeLead
from sonda.analysis.rules.code.own_code import code_of, place_of, region_of, share_of
from sonda.analysis.rules.code_findings import CodeTakes
from sonda.analysis.summary import Summary, Value, Verdict

DATA = "data"


def rule(summary: Summary) -> Verdict | None:
    """Fires when functions of the user's code take a tenth of the step each, for sure, in none of its phases, beside
    those whose activity is known."""
    leads = _leads(summary)
    if not leads:
        return None
    first = leads[0]
    return Verdict(
        kind="code",
        finding=CodeTakes(leads),
        evidence={"share": first.share, "time": Value(first.time.total, "ns", "measured")},
        share=share_of(leads),
        place=place_of(first),
    )


def code_share(summary: Summary) -> float:
    """Part of the step that functions of the user's code explain, 0 to 1, without the phase `data`."""
    code = code_of(summary)
    spent = sum(time for lead in (code.causes if code is not None else ()) for phase, time in lead.phases
                if phase != DATA)  # fmt: skip
    whole = _step_time(summary)
    return min((spent / whole if whole else 0.0) + share_of(_leads(summary)), 1.0)


def _leads(summary: Summary) -> tuple[CodeLead, ...]:
    region = region_of(summary, OTHER)
    return region.leads if region is not None else ()


def _step_time(summary: Summary) -> float:
    """ns of a step, as the shares of leads take it."""
    code = code_of(summary)
    for lead in code.causes if code is not None else ():
        if lead.share.value:
            return lead.time.total / lead.share.value
    return 0.0
