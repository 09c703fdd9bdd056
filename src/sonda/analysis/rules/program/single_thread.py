"""Single thread: operations that could use all cores run on fewer, and nobody uses the others."""

from __future__ import annotations

from sonda.analysis.rules import remedies
from sonda.analysis.rules.cause_findings import FewThreads
from sonda.analysis.rules.operations.evidence import evidence_of
from sonda.analysis.rules.operations.small_operations import operation_work
from sonda.analysis.rules.places import StepPlace
from sonda.analysis.rules.program.cores import busy_besides
from sonda.analysis.rules.work import WORTH
from sonda.analysis.summary import Remedy, Summary, Value, Verdict
from sonda.record.evidence import OperationGroup

SPLIT_NS = 100_000
"""Work from which on an operation is split among threads: PyTorch gives each at least 32,768 elements, some 10 µs of
one thread, and waking threads takes as long."""


def rule(summary: Summary) -> Verdict | None:
    """Fires when all cores would save a tenth of the step or more: the operations that are worth splitting, each by the
    cores that are free."""
    evidence = evidence_of(summary)
    advice = remedies.threads(summary)
    used, cores = summary.target.threads or 0, remedies.count_cores(summary) or 0
    if evidence is None or advice is None or not used:
        return None
    free = cores - busy_besides(summary)
    if free <= used:
        return None

    def wanted(group: OperationGroup) -> bool:
        return operation_work(group, summary.ceilings) * used >= SPLIT_NS * group.operations

    spent = evidence.time(wanted)
    saved = spent * (1 - used / free)
    share = evidence.share(saved)
    if share < WORTH:
        return None
    of_step, time = Value(share, "1", "derived"), Value(saved, "ns", "derived")
    return Verdict(
        kind="single_thread",
        finding=FewThreads(of_step, time, StepPlace(line=summary.workload.threads_line or ""), used, cores),
        evidence={"share": of_step, "time": time},
        remedies=(Remedy(advice.advice, advice.options if summary.target.spec else ()),),
        share=share,
    )
