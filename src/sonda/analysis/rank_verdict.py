"""What the ranks of a job say: the slow ones and what they spend their time on, or that none is slow."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from sonda.analysis import wording
from sonda.analysis.collectives import communicates, symmetric
from sonda.analysis.ranks import GroupTime, Job, RankTime
from sonda.analysis.step_breakdown import PARTS
from sonda.analysis.summary import Remedy, Value, Verdict

WORTH = 0.05
"""Share of a step from which waiting for one rank is worth a word."""
MOSTLY = 0.5
MOST_NAMED = 5
SPENDS = {
    "compute": ("computes {}", "compute {}"), "transfer": ("copies data for {}", "copy data for {}"),
    "compile": ("compiles for {}", "compile for {}"),
    "operations": ("executes operations on the host for {}", "execute operations on the host for {}"),
    "input": ("waits {} for input", "wait {} for input"), "launch": ("launches work for {}", "launch work for {}"),
    "host": ("spends {} in the framework itself", "spend {} in the framework itself"),
    "idle": ("does nothing that is recorded for {}", "do nothing that is recorded for {}"),
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
        return Verdict("none", sentence, _evidence(job))
    if job.mixed:
        sentence = (
            "Who waits for whom cannot be said: the job has groups of ranks, and the traces do not say of which group "
            f"a collective is.{load}"
        )
        return Verdict("none", sentence, _evidence(job))
    share = job.late_held / job.step if job.step else 0.0
    of_all = f"of {wording.plural(job.late_of, 'collective')}" + (" of its groups" if several(job) else "")
    if share < WORTH or job.late_last < MOSTLY * job.late_of:
        waiting = statistics.fmean(one.wait for one in job.ranks) / job.step if job.step else 0.0
        often = max(job.ranks, key=lambda one: one.last)
        of = wording.plural(often.collectives, "collective")
        who = f"rank {often.rank} comes last most often, to {often.last:,} of {of}"
        who = who if often.last else "none comes last as far as clocks can tell"
        none = "No rank is slow" if waiting < WORTH else "No rank is slow all the time"
        sentence = f"{none}: they wait {wording.percent(waiting)} of a step for each other, and {who}.{load}"
        return Verdict("none", sentence, _evidence(job), share=waiting)
    others = [one for one in job.ranks if one not in job.late]
    part, mine, theirs = _difference(job.late, others)
    name = _operation(job.late, others) if part in ("compute", "operations", "transfer") else ""
    most = f", most of the difference in {name}" if name else ""
    held = f"{wording.duration(job.late_held)} a step, {wording.percent(share)} of it"
    whom = "others" if several(job) else "all others"
    what, rest = SPENDS[part], f"a step where the others take {wording.duration(theirs)}{most}."
    if len(job.late) == 1:
        sentence = (
            f"Rank {job.late[0].rank} is slow: it comes last to {job.late_last:,} {of_all} and keeps {whom} "
            f"waiting {held}. It {what[0].format(wording.duration(mine))} {rest}"
        )
    else:
        sentence = (
            f"{_named(job)} are slow: one of them comes last to {job.late_last:,} {of_all}, and they keep {whom} "
            f"waiting {held}. They {what[1].format(wording.duration(mine))} {rest}"
        )
    return Verdict("communication", sentence, _evidence(job), (Remedy(TRIES[part]),) if part in TRIES else (), share)


def several(job: Job) -> bool:
    """Whether the traces tell groups of ranks apart."""
    return len(job.groups) > 1


def group_sentence(group: GroupTime, step: float) -> str:
    """What one group of ranks says; `step` is what a step takes, ns."""
    skew = f"its ranks come within {wording.duration(group.skew)} of each other on average"
    if group.latest < 0:
        return f"{skew}, and none comes last as far as clocks can tell."
    last = f"rank {group.latest} comes last to {group.last:,} of {wording.plural(group.collectives, 'collective')}"
    held = f"keeps the others waiting {wording.duration(group.held)} a step"
    share = group.held / step if step else 0.0
    if share < WORTH or group.last < MOSTLY * group.collectives:
        return f"{skew}; {last} and {held}."
    return f"{last} and {held}, {wording.percent(share)} of it; {skew}."


def _named(job: Job) -> str:
    """The slow ones: by their machine where they are all of its ranks, else by their numbers."""
    hosts = {one.host for one in job.late}
    if len(hosts) == 1 and "" not in hosts and len(job.late) == sum(one.host in hosts for one in job.ranks):
        return f"The {len(job.late):,} ranks of {hosts.pop()}"
    numbers = [str(one.rank) for one in job.late[:MOST_NAMED]]
    if len(job.late) > MOST_NAMED:
        return f"{len(job.late):,} ranks ({', '.join(numbers)}, …)"
    return f"Ranks {wording.join(numbers)}"


def _difference(late: Sequence[RankTime], others: Sequence[RankTime]) -> tuple[str, float, float]:
    """What takes slow ranks longest beyond the others: the part, and the medians of both, ns a step."""
    found: dict[str, tuple[float, float]] = {}
    for part in PARTS:
        if part in SPENDS:
            mine, theirs = (statistics.median(one.parts[part] for one in group) for group in (late, others))
            found[part] = mine, theirs
    part = max(found, key=lambda one: found[one][0] - found[one][1])
    return part, *found[part]


def _operation(late: Sequence[RankTime], others: Sequence[RankTime]) -> str:
    """The operation whose own time exceeds the others' by most, in the middle; '' where none does."""
    more = {
        name: statistics.median(one.operations.get(name, 0.0) for one in late)
        - statistics.median(one.operations.get(name, 0.0) for one in others)
        for name in {name for one in late for name in one.operations}
        if not communicates(name) and not symmetric(name)
    }
    found = max(sorted(more), key=lambda name: more[name], default="")
    return found if found and more[found] > 0 else ""


def _load(job: Job) -> str:
    if math.isnan(job.imbalance):
        return ""
    return f" The busiest rank of a step computes {job.imbalance:.2f} times the mean."


def _evidence(job: Job) -> dict[str, Value]:
    imbalance = None if math.isnan(job.imbalance) else job.imbalance
    return {
        "imbalance": Value(imbalance, "1", "derived", reason="" if imbalance is not None else "nothing computes"),
        "collectives": Value(job.collectives, "1", "counted"),
        "wait": Value(statistics.fmean(one.wait for one in job.ranks), "ns", "derived"),
        "step": Value(job.step, "ns", "derived"),
        "late ranks": Value(len(job.late), "1", "counted"),
        "last": Value(job.late_last, "1", "counted"),
        "held": Value(job.late_held, "ns", "derived"),
    }
