"""Waiting: a training neither computes nor loads through a loader; it waits for a file, a socket, a lock, a sleep."""

from __future__ import annotations

from sonda.analysis.rules.advice import Change, TryChange
from sonda.analysis.rules.code import waiting_code_share
from sonda.analysis.rules.input import ALWAYS
from sonda.analysis.rules.limits import WaitsOutside
from sonda.analysis.rules.work import WORTH, explained, first_part, waiting_share
from sonda.analysis.summary import Remedy, Summary, Value, Verdict

TOLD = 0.5
"""Where lines are known in which this part of the waiting is done, these are told instead."""
LOADER = Remedy(TryChange(Change.READ_IN_WORKERS))
THREAD = Remedy(TryChange(Change.NEXT_BATCH_IN_THREAD))


def rule(summary: Summary) -> Verdict | None:
    """Fires as for input: at more than a fifth of the step, or a tenth and more than any other limit; not where the
    lines are known that wait."""
    part = first_part(summary)
    waiting = waiting_share(summary, part) if part is not None else 0.0
    if part is None or not (waiting > ALWAYS or (waiting >= WORTH and waiting >= max(explained(part).values()))):
        return None
    if waiting_code_share(summary) >= TOLD * waiting:
        return None
    spent = Value(waiting * sum(part.durations) / len(part.durations), "ns", "derived")
    share = Value(waiting, "1", "derived")
    return Verdict(
        kind="waiting",
        finding=WaitsOutside(share, spent),
        evidence={"share": share, "waits": spent},
        remedies=(LOADER, THREAD),
        share=waiting,
    )
