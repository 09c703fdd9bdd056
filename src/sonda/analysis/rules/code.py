"""Own code: functions of the program outside of layers, and those that make its data, take a share of the step."""

from __future__ import annotations

from sonda.analysis.code.summary import OTHER, WORKERS, CodeLead, Doing
from sonda.analysis.rules.input import ALWAYS
from sonda.analysis.rules.limits import CodeTakes
from sonda.analysis.rules.work import data_share, first_part
from sonda.analysis.summary import Summary, Value, Verdict

DATA = "data"
LOADER = "torch.utils.data."
"""Begin of the names of what a loader does."""


def rule(summary: Summary) -> Verdict | None:
    """Fires when functions of the user's code take a tenth of the step each, for sure, in none of its phases."""
    leads = leads_in(summary, OTHER)
    return _verdict(leads, OTHER, sum(lead.share.value or 0.0 for lead in leads)) if leads else None


def data_rule(summary: Summary) -> Verdict | None:
    """Fires when such functions make the data that the step waits for: in its own process, or in workers."""
    # A line that waits for its loader says no more than that the step waits for input.
    leads = tuple(lead for lead in leads_in(summary, DATA) if not lead.called.startswith(LOADER))
    if leads:
        return _verdict(leads, DATA, sum(lead.share.value or 0.0 for lead in leads))
    part = first_part(summary)
    waiting = data_share(part) if part is not None else 0.0
    leads = leads_in(summary, WORKERS) if waiting > ALWAYS else ()
    # Workers stand behind what the step waits: they explain no more than that.
    return _verdict(leads, WORKERS, waiting * min(sum(lead.share.value or 0.0 for lead in leads), 1)) if leads else None


def leads_in(summary: Summary, region: str) -> tuple[CodeLead, ...]:
    """The functions that lead in a region of the part that verdicts speak of."""
    part = first_part(summary)
    code = summary.code.part(part.name) if summary.code is not None and part is not None else None
    sampled = code.region(region) if code is not None else None
    return sampled.leads if sampled is not None else ()


def code_share(summary: Summary) -> float:
    """Part of the step that these functions take outside of phases, 0 to 1."""
    return min(sum(lead.share.value or 0.0 for lead in leads_in(summary, OTHER)), 1.0)


def waiting_code_share(summary: Summary) -> float:
    """Part of the step in which they wait, 0 to 1."""
    return sum(
        (lead.share.value or 0.0) * lead.time.waiting / lead.time.total
        for lead in leads_in(summary, OTHER) if lead.time.doing is Doing.WAITING
    )  # fmt: skip


def _verdict(leads: tuple[CodeLead, ...], region: str, share: float) -> Verdict:
    first = leads[0]
    return Verdict(
        kind="code",
        finding=CodeTakes(leads, region),
        evidence={"share": first.share, "time": Value(first.time.total, "ns", "measured")},
        share=min(share, 1.0),
    )
