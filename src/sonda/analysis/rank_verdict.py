"""What the ranks of a job say, in one sentence: the slow one and what it spends its time on, or that none is slow."""

from __future__ import annotations

import math
import statistics

from sonda.analysis import wording
from sonda.analysis.collectives import communicates, symmetric
from sonda.analysis.ranks import Job, RankTime
from sonda.analysis.step_breakdown import PARTS
from sonda.analysis.summary import Remedy, Value, Verdict

WORTH = 0.05
"""Share of a step from which waiting for one rank is worth a word."""
MOSTLY = 0.5
SPENDS = {
    "compute": "computes {}", "transfer": "copies data for {}", "compile": "compiles for {}",
    "operations": "executes operations on the host for {}", "input": "waits {} for input",
    "launch": "launches work for {}", "host": "spends {} in the framework itself",
    "idle": "does nothing that is recorded for {}",
}  # fmt: skip
"""What a rank does that takes more of its step than of the others'. Communication is not among them: who waits is not
slow."""
TRIES = {
    "compute": "give every rank the same work: batches, shards and experts of equal cost; look at that machine's clock",
    "input": "look at that rank's input: its files, its loader's processes, its disk",
    "transfer": "look at what that rank copies and the others do not",
    "compile": "look at why that rank compiles: its shapes change, or its cache is cold",
    "idle": "look at that machine: another program, a slow clock, or work that the profiler does not record",
}


def rank_verdict(job: Job) -> Verdict:
    """One sentence and the numbers behind it."""
    load = _load(job)
    if not job.collectives:
        sentence = f"No collective is in the traces of all ranks: who waits for whom cannot be said.{load}"
        return Verdict("none", sentence, _evidence(job, None))
    slow = max(job.ranks, key=lambda one: (one.held, one.last))
    share = slow.held / job.step if job.step else 0.0
    of_all = f"of {wording.plural(job.collectives, 'collective')}"
    if share < WORTH or slow.last < MOSTLY * job.collectives:
        waiting = statistics.fmean(one.wait for one in job.ranks) / job.step if job.step else 0.0
        often = max(job.ranks, key=lambda one: one.last)
        who = f"rank {often.rank} comes last most often, to {often.last:,} {of_all}"
        who = who if often.last else "none comes last as far as clocks can tell"
        sentence = f"No rank is slow: they wait {wording.percent(waiting)} of a step for each other, and {who}.{load}"
        return Verdict("none", sentence, _evidence(job, None), share=waiting)
    part, mine, others = _difference(job, slow)
    what = SPENDS[part].format(wording.duration(mine))
    name = _operation(job, slow) if part in ("compute", "operations", "transfer") else ""
    most = f", most of the difference in {name}" if name else ""
    sentence = (
        f"Rank {slow.rank} is slow: it comes last to {slow.last:,} {of_all} and keeps all others waiting "
        f"{wording.duration(slow.held)} a step, {wording.percent(share)} of it. It {what} a step where the others take "
        f"{wording.duration(others)}{most}."
    )
    remedies = (Remedy(TRIES[part]),) if part in TRIES else ()
    return Verdict("communicate", sentence, _evidence(job, slow), remedies, share)


def _difference(job: Job, slow: RankTime) -> tuple[str, float, float]:
    """What takes the slow rank longest beyond the others: the part, its ns a step, and the others' median."""
    others = [one for one in job.ranks if one is not slow]
    found = {part: statistics.median(one.parts[part] for one in others) for part in PARTS if part in SPENDS}
    part = max(found, key=lambda one: slow.parts[one] - found[one])
    return part, slow.parts[part], found[part]


def _operation(job: Job, slow: RankTime) -> str:
    """The operation whose own time exceeds the others' by most; '' where none does."""
    others = [one for one in job.ranks if one is not slow]
    more = {
        name: time - statistics.median(one.operations.get(name, 0.0) for one in others)
        for name, time in slow.operations.items()
        if not communicates(name) and not symmetric(name)
    }
    found = max(more, key=lambda name: more[name], default="")
    return found if found and more[found] > 0 else ""


def _load(job: Job) -> str:
    if math.isnan(job.imbalance):
        return ""
    return f" The busiest rank of a step computes {job.imbalance:.2f} times the mean."


def _evidence(job: Job, slow: RankTime | None) -> dict[str, Value]:
    imbalance = None if math.isnan(job.imbalance) else job.imbalance
    found = {
        "imbalance": Value(imbalance, "1", "derived", reason="" if imbalance is not None else "nothing computes"),
        "collectives": Value(job.collectives, "1", "counted"),
        "wait": Value(statistics.fmean(one.wait for one in job.ranks), "ns", "derived"),
        "step": Value(job.step, "ns", "derived"),
    }
    if slow is not None:
        found |= {"last": Value(slow.last, "1", "counted"), "held": Value(slow.held, "ns", "derived")}
    return found
