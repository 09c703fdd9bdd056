"""What the ranks of a job say: the slow ones and what they spend their time on, or that none is slow."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from sonda.analysis import reasons
from sonda.analysis.ranks.collectives import symmetric
from sonda.analysis.ranks.findings import LookAtRank, NoCollective, NoSlowRank, SlowRanks, UntoldGroups
from sonda.analysis.ranks.stragglers import ImportedJob, RankTime
from sonda.analysis.summary import Remedy, Value, Verdict
from sonda.analysis.traces.step_breakdown import COMMUNICATION, PARTS
from sonda.record.conventions.profile_names import communicates

WORTH = 0.05
"""Share of a step from which waiting for one rank is worth a word."""
MOSTLY = 0.5
EXPLAINS = 0.5
"""Share of the waiting from which a longer part of a slow rank's steps is said to be why."""
REMEDIED = ("compute", "input", "transfer", "compile", "idle")
"""Parts of a step of which there is something to try."""


def rank_verdict(job: ImportedJob) -> Verdict:
    """Who is slow and why, or that nobody is, and the numbers behind it."""
    evidence, imbalance = _evidence(job), None if math.isnan(job.imbalance) else job.imbalance
    if not job.collectives:
        return Verdict("nothing", NoCollective(imbalance), evidence)
    if job.mixed:
        return Verdict("unknown", UntoldGroups(imbalance), evidence)
    hidden = job.late_held - job.late_exposed >= WORTH * job.step
    exposed = job.late_exposed if hidden else job.late_held
    share = _of_step(exposed, job.step)
    if share < WORTH or job.late_last < MOSTLY * job.late_of:
        nobody = _no_slow_rank(job, imbalance)
        return Verdict("balanced", nobody, evidence, share=min(nobody.exposed, 1.0))
    punctual = [rank for rank in job.ranks if rank not in job.late]
    part, mine, theirs = _difference(job.late, punctual)
    explained = mine - theirs >= EXPLAINS * exposed
    finding = SlowRanks(
        ranks=tuple(rank.rank for rank in job.late),
        machine=_machine(job),
        last=job.late_last,
        collectives=job.late_of,
        groups=several(job),
        held=job.late_held,
        exposed=exposed,
        hidden=hidden,
        share=share,
        part=part if explained else "",
        theirs=mine,
        others=theirs,
        operation=_operation(job.late, punctual) if part in ("compute", "operations", "transfer") else "",
    )
    remedies = (Remedy(LookAtRank(part)),) if explained and part in REMEDIED else ()
    return Verdict("communication", finding, evidence, remedies, min(share, 1.0))


def _no_slow_rank(job: ImportedJob, imbalance: float | None) -> NoSlowRank:
    wait = statistics.fmean(rank.wait for rank in job.ranks)
    waiting = _of_step(wait, job.step)
    exposed = _of_step(statistics.fmean(rank.exposed_wait for rank in job.ranks), job.step)
    often = max(job.ranks, key=lambda rank: rank.last)
    return NoSlowRank(
        wait=wait,
        waiting=waiting,
        exposed=exposed,
        sometimes=exposed >= WORTH,
        hidden=waiting - exposed >= WORTH,
        latest=often.rank,
        last=often.last,
        collectives=often.collectives,
        imbalance=imbalance,
    )


def several(job: ImportedJob) -> bool:
    """Whether the traces tell groups of ranks apart."""
    return len(job.groups) > 1


def _of_step(time: float, step: float) -> float:
    """A part of a step; more than 1 where clocks make it longer than the step."""
    return time / step if step else 0.0


def _machine(job: ImportedJob) -> str:
    """The machine whose ranks are all slow, where no other's are; else ''."""
    hosts = {rank.host for rank in job.late}
    whole = len(hosts) == 1 and len(job.late) == sum(rank.host in hosts for rank in job.ranks)
    return hosts.pop() if whole else ""


def _difference(late: Sequence[RankTime], punctual: Sequence[RankTime]) -> tuple[str, float, float]:
    """What takes slow ranks longest beyond the others: the part, and the medians of both, ns a step."""
    medians: dict[str, tuple[float, float]] = {}
    for part in PARTS:
        if part != PARTS[COMMUNICATION]:  # who waits is not slow
            mine, theirs = (statistics.median(rank.parts[part] for rank in group) for group in (late, punctual))
            medians[part] = mine, theirs
    part = max(medians, key=lambda name: medians[name][0] - medians[name][1])
    return part, *medians[part]


def _operation(late: Sequence[RankTime], punctual: Sequence[RankTime]) -> str:
    """The operation whose own time exceeds the others' by most, in the middle; '' where none does."""
    more = {
        name: statistics.median(rank.operations.get(name, 0.0) for rank in late)
        - statistics.median(rank.operations.get(name, 0.0) for rank in punctual)
        for name in {name for rank in late for name in rank.operations}
        if not communicates(name) and not symmetric(name)
    }
    longest = max(sorted(more), key=lambda name: more[name], default="")
    return longest if longest and more[longest] > 0 else ""


def _evidence(job: ImportedJob) -> dict[str, Value]:
    imbalance = None if math.isnan(job.imbalance) else job.imbalance
    return {
        "imbalance": Value(imbalance, "1", "derived", reason="" if imbalance is not None else reasons.NOTHING_COMPUTES),
        "collectives": Value(job.collectives, "1", "counted"),
        "wait": Value(statistics.fmean(rank.wait for rank in job.ranks), "ns", "derived"),
        "step": Value(job.step, "ns", "derived"),
        "late ranks": Value(len(job.late), "1", "counted"),
        "last": Value(job.late_last, "1", "counted"),
        "held": Value(job.late_held, "ns", "derived"),
    }
