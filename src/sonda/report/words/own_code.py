"""Words for what the user's own code does that takes time."""

from __future__ import annotations

from sonda.analysis import wording
from sonda.analysis.code.summary import Activity, Doing
from sonda.analysis.rules.code_findings import (
    AsksForMemory,
    CodeBetween,
    CodeCause,
    CodeTakes,
    CollectsGarbage,
    ComputesMetrics,
    CopiesData,
    HeldByThread,
    LoopsInPython,
    PreparesInput,
    ProgramWaits,
    SavesState,
    WritesRecords,
)
from sonda.report.words.code import describe_lead, name_place, name_wait, shorten
from sonda.report.words.describe import describe
from sonda.report.words.numbers import number, share

MOST_LEADS = 3
"""Functions of the user's code that a sentence names."""


@describe.register
def _(finding: CodeTakes) -> str:
    first, *others = finding.leads[:MOST_LEADS]
    clauses = [f"{name_place(first)} takes {share(first.share)} of the step ({describe_lead(first)})"]
    clauses += [f"{name_place(lead)} {share(lead.share)} ({describe_lead(lead)})" for lead in others]
    return f"{wording.join(clauses)}."


def _at_lines(finding: CodeCause, what: str, whole: str = "the step") -> str:
    """`train.py:41 Watch.__call__ takes 62 % of the step (29 ms): it writes records, …`."""
    first, *others = finding.leads[:MOST_LEADS]
    also = [f"{name_place(lead)} {share(lead.share)}" for lead in others]
    text = f" ({shorten(first.text)})" if first.text else ""
    return (
        f"{name_place(first)} takes {share(first.share)} of {whole} ({wording.duration(first.time.total)}): "
        f"{what}{text}{''.join(f'; {clause}' for clause in also)}."
    )


PURPOSES = {
    Activity.COLLECTION: "collecting garbage",
    Activity.LOG: "printing, logging or writing records",
    Activity.CHECKPOINT: "saving weights or other state",
    Activity.COPY: "copying or converting data",
    Activity.ALLOCATION: "asking for new memory and filling it",
    Activity.METRIC: "computing what neither the backward nor the next step needs",
    Activity.LOOP: "a loop in Python",
    Activity.INPUT: "reading or preparing input",
}
"""What lines do, as their activity tells."""


@describe.register
def _(finding: CodeBetween) -> str:
    first = finding.leads[0]
    waits = f"{name_wait(first.time.call)}" if first.activity is Activity.WAIT else ""
    what = waits or PURPOSES.get(first.activity) or describe_lead(first).partition(", ")[2]
    place = "the time between the first step and the last" if finding.steps else "the program after its imports"
    return _at_lines(finding, what, place)


@describe.register
def _(finding: ProgramWaits) -> str:
    return _at_lines(finding, f"{name_wait(finding.leads[0].time.call)}")


@describe.register
def _(finding: HeldByThread) -> str:
    first = finding.leads[0]
    return (
        f"{name_place(first)} runs Python code in another thread, and the step waits {share(finding.share)} of its "
        "time for the interpreter's lock."
    )


@describe.register
def _(finding: CollectsGarbage) -> str:
    how = "the program calls it" if finding.asked else "objects that the program makes and keeps drive it"
    return (
        f"{name_place(finding.leads[0])}: garbage collection takes {share(finding.share)} of the step, "
        f"{number(finding.count):,.1f} collections a step; {how}."
    )


@describe.register
def _(finding: WritesRecords) -> str:
    return _at_lines(finding, PURPOSES[Activity.LOG])


@describe.register
def _(finding: SavesState) -> str:
    return _at_lines(finding, PURPOSES[Activity.CHECKPOINT])


@describe.register
def _(finding: CopiesData) -> str:
    return _at_lines(finding, PURPOSES[Activity.COPY])


@describe.register
def _(finding: AsksForMemory) -> str:
    return _at_lines(finding, PURPOSES[Activity.ALLOCATION])


@describe.register
def _(finding: ComputesMetrics) -> str:
    return _at_lines(finding, PURPOSES[Activity.METRIC])


@describe.register
def _(finding: LoopsInPython) -> str:
    return _at_lines(finding, PURPOSES[Activity.LOOP])


@describe.register
def _(finding: PreparesInput) -> str:
    waits = finding.leads[0].time.doing is Doing.WAITING
    return _at_lines(
        finding, f"{'waiting for' if waits else 'preparing'} the input of the forward, outside of a loader"
    )
