"""Waiting: the program neither computes nor loads through a loader; it waits for a file, a socket, a lock, a sleep."""

from __future__ import annotations

from sonda.analysis.code.summary import BESIDE, OUTSIDE, WORKERS, Activity
from sonda.analysis.rules.advice import Change, LineChange, TryChange
from sonda.analysis.rules.code.busy_line import code_share
from sonda.analysis.rules.code.input import ALWAYS
from sonda.analysis.rules.code.own_code import causes_of, code_of, code_verdict, region_of
from sonda.analysis.rules.code_findings import HeldByThread, ProgramWaits
from sonda.analysis.rules.limit_findings import WaitsOutside
from sonda.analysis.rules.work import WORTH, explained, first_part, waiting_share
from sonda.analysis.summary import Remedy, Summary, Value, Verdict
from sonda.record.stacks import INTERPRETER

NOT_STEPPING = (BESIDE, WORKERS, OUTSIDE)
TOLD = 0.5
"""Where lines are known that take this part of the waiting outside of phases, these are told instead."""
LOADER = Remedy(TryChange(Change.READ_IN_WORKERS))
THREAD = Remedy(TryChange(Change.NEXT_BATCH_IN_THREAD))


def at_lines(summary: Summary) -> Verdict | None:
    """Fires when lines of the program wait for a tenth of the step each, for sure."""
    leads = causes_of(summary, Activity.WAIT)
    return code_verdict(Activity.WAIT, ProgramWaits(leads), LineChange.WAIT_LESS) if leads else None


def for_threads(summary: Summary) -> Verdict | None:
    """Fires when the thread that steps waits for the interpreter's lock a tenth of the step, and a function of another
    thread runs Python code as long."""
    code, beside = code_of(summary), region_of(summary, BESIDE)
    leads = tuple(lead for lead in beside.leads if lead.time.python >= lead.time.native) if beside is not None else ()
    if code is None or not leads:
        return None
    own = [region.time for region in code.regions if region.name not in NOT_STEPPING]
    calls = {call for time in own for call, _ in time.calls}
    stepping, ran = sum(time.total for time in own), sum(time.ran for time in own)
    whole = leads[0].time.total / (leads[0].share.value or 1.0)
    # One thread at a time has the lock: what others have of it, and this one stands still, it waits for them.
    share = min(sum(lead.time.python for lead in leads), stepping - ran) / whole if whole else 0.0
    if INTERPRETER not in calls or share < WORTH:
        return None
    finding = HeldByThread(leads, Value(share, "1", "measured"))
    return code_verdict(Activity.WAIT, finding, LineChange.WAIT_LESS, share=share)


def rule(summary: Summary) -> Verdict | None:
    """Fires as for input: at more than a fifth of the step, or a tenth and more than any other limit; not where the
    lines are known that wait."""
    part = first_part(summary)
    waiting = waiting_share(summary, part) if part is not None else 0.0
    if part is None or not (waiting > ALWAYS or (waiting >= WORTH and waiting >= max(explained(part).values()))):
        return None
    if code_share(summary) >= TOLD * waiting or for_threads(summary) is not None:
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
