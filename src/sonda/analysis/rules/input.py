"""Input-bound: the network waits for its data."""

from __future__ import annotations

from sonda.analysis.rules import remedies
from sonda.analysis.rules.limits import InputBound, UnevenInput
from sonda.analysis.rules.work import WORTH, data_share, data_share_of_all, explained, first_part
from sonda.analysis.summary import Remedy, Summary, Value, Verdict

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
    if waiting <= ALWAYS and not largest:
        return uneven(summary)
    spent = next(row.cost.time for row in part.phases if row.name == "data")
    share = Value(waiting, "1", "derived")
    return Verdict(
        kind="input",
        finding=InputBound(share, spent, summary.workload.workers or 0),
        evidence={"share": share, "data": spent},
        remedies=_advice(summary),
        share=waiting,
    )


def uneven(summary: Summary) -> Verdict | None:
    """Fires when waiting for data takes more than a fifth of the time of all steps, whatever a single one does."""
    part = first_part(summary)
    waiting = data_share_of_all(part) if part is not None else 0.0
    if part is None or waiting <= ALWAYS or (summary.target.spec and not summary.workload.data):
        return None
    spent = Value(waiting * sum(part.timed) / len(part.timed), "ns", "derived")
    share = Value(waiting, "1", "derived")
    return Verdict(
        kind="input",
        finding=UnevenInput(share, spent),
        evidence={"share": share, "data": spent},
        remedies=_advice(summary),
        share=waiting,
    )


def _advice(summary: Summary) -> tuple[Remedy, ...]:
    return remedies.remedies(summary, remedies.prefetch, remedies.workers, remedies.slowest_stage, remedies.cache)
