"""Input-bound: the network waits for its data."""

from __future__ import annotations

from sonda.analysis.code.summary import WORKERS, Activity, CodeLead
from sonda.analysis.rules import remedies
from sonda.analysis.rules.advice import ChangeLine, LineChange, LoadInParallel
from sonda.analysis.rules.code.own_code import causes_of, code_verdict, place_of, region_of, share_of
from sonda.analysis.rules.code_findings import PreparesInput
from sonda.analysis.rules.limit_findings import InputBound, UnevenInput
from sonda.analysis.rules.work import WORTH, data_share, data_share_of_all, explained, first_part, is_uneven
from sonda.analysis.summary import Remedy, Summary, Value, Verdict

DATA = "data"
LOADER = "torch.utils.data."
"""Begin of the names of what a loader does: a line that waits for it says no more than that the step waits."""
ALWAYS = 0.20
"""A fifth of the step waiting is input-bound whatever else there is: waiting is the one cost that loading ahead removes
whole, without touching the network."""


def rule(summary: Summary) -> Verdict | None:
    """Fires when waiting for data takes more than a fifth of the step, or a tenth and more than any other limit; also
    where it takes a fifth of the time of all steps, and the median step does not tell."""
    part = first_part(summary)
    # A workload that Sonda runs without --data gets numbers: waiting for them says nothing about anybody's input.
    if part is None or (summary.target.spec and not summary.workload.data):
        return None
    waiting = data_share(part)
    largest = waiting >= WORTH and waiting >= max(explained(part).values())
    more_in_all = is_uneven(part) and data_share_of_all(part) > waiting
    if more_in_all or (waiting <= ALWAYS and not largest):
        verdict = uneven(summary)
        if verdict is not None or not largest:
            return verdict
    spent = next(row.cost.time for row in part.phases if row.name == "data")
    share = Value(waiting, "1", "derived")
    leads, in_workers = _find_leads(summary)
    return Verdict(
        kind="input",
        finding=InputBound(share, spent, summary.workload.workers or 0, leads, in_workers),
        evidence={"share": share, "data": spent},
        remedies=_advice(summary, waiting),
        share=waiting,
        place=place_of(leads[0]) if leads else None,
    )


def uneven(summary: Summary) -> Verdict | None:
    """Fires when waiting for data takes more than a fifth of the time of all steps, whatever a single one does."""
    part = first_part(summary)
    waiting = data_share_of_all(part) if part is not None else 0.0
    if part is None or waiting <= ALWAYS or (summary.target.spec and not summary.workload.data):
        return None
    spent = Value(waiting * sum(part.timed) / len(part.timed), "ns", "derived")
    share = Value(waiting, "1", "derived")
    leads, in_workers = _find_leads(summary)
    return Verdict(
        kind="input",
        finding=UnevenInput(share, spent, leads, in_workers),
        evidence={"share": share, "data": spent},
        remedies=_advice(summary, waiting),
        share=waiting,
        place=place_of(leads[0]) if leads else None,
    )


def by_hand(summary: Summary) -> Verdict | None:
    """Fires when functions before the forward, outside of a loader, read or prepare its input for a tenth of the step
    each, for sure."""
    leads = tuple(lead for lead in causes_of(summary, Activity.INPUT) if not _in_loader(lead))
    return code_verdict(Activity.INPUT, PreparesInput(leads), LineChange.FASTER_INPUT) if leads else None


def _find_leads(summary: Summary) -> tuple[tuple[CodeLead, ...], bool]:
    """The functions that make the data, and whether they run in workers: the step only waits for these."""
    workers = region_of(summary, WORKERS)
    if workers is not None and workers.leads:
        return workers.leads, True
    own = [lead for lead in causes_of(summary, Activity.INPUT) if _in_loader(lead)]
    return tuple(lead for lead in own if not lead.called.startswith(LOADER)), False


def _in_loader(lead: CodeLead) -> bool:
    return bool(lead.phases) and lead.phases[0][0] == DATA


def _advice(summary: Summary, waiting: float) -> tuple[Remedy, ...]:
    """What brings most first: workers that load while the network computes, or faster code at the line."""
    general = remedies.remedies(
        summary, remedies.prefetch, remedies.workers, remedies.slowest_stage, remedies.cache
    )  # fmt: skip
    leads, in_workers = _find_leads(summary)
    if not leads:
        return general
    faster = Remedy(ChangeLine(LineChange.FASTER_INPUT, place_of(leads[0])))
    wanted = next((remedy.advice.workers for remedy in general if isinstance(remedy.advice, LoadInParallel)), 0)
    used = max(summary.workload.workers or 0, 1)
    # With more workers a batch takes as long divided by how many more there are; the step is what is left, or that.
    saved = 1 - max(1 - waiting, waiting * used / wanted) if wanted else 0.0
    line = share_of(leads[:1]) * (waiting if in_workers else 1.0)
    return (*general, faster) if saved >= line else (faster, *general)
