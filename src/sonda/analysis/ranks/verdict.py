"""What the ranks of a job say: the slow ones and what they spend their time on, or that none is slow."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from sonda.analysis import wording
from sonda.analysis.bounds import part_of_step
from sonda.analysis.findings import Remark
from sonda.analysis.ranks.collectives import symmetric
from sonda.analysis.ranks.stragglers import GroupTime, Job, RankTime
from sonda.analysis.summary import Remedy, Value, Verdict
from sonda.analysis.traces.step_breakdown import PARTS
from sonda.record.conventions.profile_names import communicates

WORTH = 0.05
"""Share of a step from which waiting for one rank is worth a word."""
MOSTLY = 0.5
EXPLAINS = 0.5
"""Share of the waiting from which a longer part of a slow rank's steps is said to be why."""
MOST_NAMED = 5
SPENDS = {
    "compute": ("computes {}", "compute {}"), "transfer": ("copies data for {}", "copy data for {}"),
    "compile": ("compiles for {}", "compile for {}"),
    "operations": ("executes operations on the host for {}", "execute operations on the host for {}"),
    "input": ("waits {} for input", "wait {} for input"), "launch": ("launches work for {}", "launch work for {}"),
    "host": ("spends {} in Python or the framework itself", "spend {} in Python or the framework itself"),
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
        return Verdict("none", Remark(sentence), _evidence(job))
    if job.mixed:
        sentence = (
            "Who waits for whom cannot be said: the job has groups of ranks, and the traces do not say of which group "
            f"a collective is.{load}"
        )
        return Verdict("none", Remark(sentence), _evidence(job))
    hidden = job.late_held - job.late_exposed >= WORTH * job.step
    exposed = job.late_exposed if hidden else job.late_held
    share = _of_step(exposed, job.step)
    of_all = f"of {wording.plural(job.late_of, 'collective')}" + (" of its groups" if several(job) else "")
    if share < WORTH or job.late_last < MOSTLY * job.late_of:
        in_all, waiting = (
            _of_step(statistics.fmean(times), job.step)
            for times in ([rank.wait for rank in job.ranks], [rank.exposed_wait for rank in job.ranks])
        )
        often = max(job.ranks, key=lambda rank: rank.last)
        of = wording.plural(often.collectives, "collective")
        who = f"rank {often.rank} comes last most often, to {often.last:,} of {of}"
        who = who if often.last else "none comes last as far as clocks can tell"
        none = "No rank is slow" if waiting < WORTH else "No rank is slow all the time"
        spent = f"{wording.percent(in_all)} of a step" if _of_it(in_all) else f"{_mean_wait(job)} a step"
        waits = f"they wait {spent} for each other"
        if in_all - waiting >= WORTH and _of_it(waiting):
            waits += f", computing hides all but {wording.percent(waiting)}"
        sentence = f"{none}: {waits}, and {who}.{load}"
        return Verdict("none", Remark(sentence), _evidence(job), share=min(waiting, 1.0))
    punctual = [rank for rank in job.ranks if rank not in job.late]
    part, mine, theirs = _difference(job.late, punctual)
    name = _operation(job.late, punctual) if part in ("compute", "operations", "transfer") else ""
    most = f", most of the difference in {name}" if name else ""
    shown = f", of which computing hides all but {wording.duration(exposed)}" if hidden else ""
    held_words = f"{wording.duration(job.late_held)} a step{shown}{_of_it(share)}"
    whom = "others" if several(job) else "all others"
    alone = len(job.late) == 1
    if alone:
        sentence = f"Rank {job.late[0].rank} is slow: it comes last to {job.late_last:,} {of_all} and keeps {whom}"
    else:
        sentence = f"{_named(job)} are slow: one of them comes last to {job.late_last:,} {of_all}, and they keep {whom}"
    sentence += f" waiting {held_words}."
    if mine - theirs < EXPLAINS * exposed:
        sentence += f" {'Its' if alone else 'Their'} steps have no part that is longer by as much."
        return Verdict("communication", Remark(sentence), _evidence(job), (), min(share, 1.0))
    spends = SPENDS[part][0 if alone else 1].format(wording.duration(mine))
    who = "It" if alone else "They"
    sentence += f" {who} {spends} a step where the others take {wording.duration(theirs)}{most}."
    remedies = (Remedy(Remark(TRIES[part])),) if part in TRIES else ()
    return Verdict("communication", Remark(sentence), _evidence(job), remedies, min(share, 1.0))


def several(job: Job) -> bool:
    """Whether the traces tell groups of ranks apart."""
    return len(job.groups) > 1


def group_sentence(group: GroupTime, step: float) -> str:
    """What one group of ranks says; `step` is what a step takes, ns."""
    skew = f"its ranks come within {wording.duration(group.skew)} of each other on average"
    if group.latest < 0:
        return f"{skew}, and none comes last as far as clocks can tell."
    last = f"rank {group.latest} comes last to {group.last:,} of {wording.plural(group.collectives, 'collective')}"
    held_words = f"keeps the others waiting {wording.duration(group.held)} a step"
    share = _of_step(group.held, step)
    if share < WORTH or group.last < MOSTLY * group.collectives:
        return f"{skew}; {last} and {held_words}."
    return f"{last} and {held_words}{_of_it(share)}; {skew}."


def _of_step(time: float, step: float) -> float:
    """A part of a step; more than 1 where clocks make it longer than the step."""
    return time / step if step else 0.0


def _of_it(share: float) -> str:
    """`, 43 % of it`, behind a time of a step; '' for what is more than all of it."""
    part = part_of_step(share).value
    return "" if part is None else f", {wording.percent(part)} of it"


def _mean_wait(job: Job) -> str:
    return wording.duration(statistics.fmean(rank.wait for rank in job.ranks))


def _named(job: Job) -> str:
    """The slow ones: by their machine where they are all of its ranks, else by their numbers."""
    hosts = {rank.host for rank in job.late}
    if len(hosts) == 1 and "" not in hosts and len(job.late) == sum(rank.host in hosts for rank in job.ranks):
        return f"The {len(job.late):,} ranks of {hosts.pop()}"
    numbers = [str(rank.rank) for rank in job.late[:MOST_NAMED]]
    if len(job.late) > MOST_NAMED:
        return f"{len(job.late):,} ranks ({', '.join(numbers)}, …)"
    return f"Ranks {wording.join(numbers)}"


def _difference(late: Sequence[RankTime], punctual: Sequence[RankTime]) -> tuple[str, float, float]:
    """What takes slow ranks longest beyond the others: the part, and the medians of both, ns a step."""
    medians: dict[str, tuple[float, float]] = {}
    for part in PARTS:
        if part in SPENDS:
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


def _load(job: Job) -> str:
    if math.isnan(job.imbalance):
        return ""
    return f" The busiest rank computes {job.imbalance:.2f} times the mean."


def _evidence(job: Job) -> dict[str, Value]:
    imbalance = None if math.isnan(job.imbalance) else job.imbalance
    return {
        "imbalance": Value(imbalance, "1", "derived", reason="" if imbalance is not None else "nothing computes"),
        "collectives": Value(job.collectives, "1", "counted"),
        "wait": Value(statistics.fmean(rank.wait for rank in job.ranks), "ns", "derived"),
        "step": Value(job.step, "ns", "derived"),
        "late ranks": Value(len(job.late), "1", "counted"),
        "last": Value(job.late_last, "1", "counted"),
        "held": Value(job.late_held, "ns", "derived"),
    }
