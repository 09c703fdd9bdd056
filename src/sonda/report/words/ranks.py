"""Words for ranks: who is slow, who waits, and what makes that doubtful."""

from __future__ import annotations

from sonda.analysis import wording
from sonda.analysis.bounds import part_of_step
from sonda.analysis.ranks.findings import (
    ComparedClocks,
    CriticalRank,
    ImpossibleCollectives,
    LookAtRank,
    MatchedOverGroups,
    MissingRanks,
    NoCollective,
    NoSlowRank,
    PartialGroups,
    SeparateClocks,
    SlowRanks,
    StepsLeftOut,
    UnmarkedSteps,
    UnmatchedCollectives,
    UnnumberedSteps,
    UntoldGroups,
)
from sonda.analysis.ranks.stragglers import GroupTime, ImportedJob
from sonda.analysis.ranks.verdict import MOSTLY, WORTH
from sonda.report import quantities
from sonda.report.words.describe import describe

MOST_NAMED = 5
SPENDS = {
    "compute": ("computes {}", "compute {}"), "transfer": ("copies data for {}", "copy data for {}"),
    "compile": ("compiles for {}", "compile for {}"),
    "operations": ("executes operations on the host for {}", "execute operations on the host for {}"),
    "input": ("waits {} for input", "wait {} for input"), "launch": ("launches work for {}", "launch work for {}"),
    "host": ("spends {} in Python or the framework itself", "spend {} in Python or the framework itself"),
    "idle": ("does nothing that is recorded for {}", "do nothing that is recorded for {}"),
}  # fmt: skip
"""What a rank does, and what several do, by parts of a step."""
TRIES = {
    "compute": "give every rank the same work: batches, shards and experts of equal cost; look at that machine's clock",
    "input": "look at that rank's input: its files, its loader's processes, its disk",
    "transfer": "look at what that rank copies and the others do not",
    "compile": "look at why that rank compiles: its shapes change, or its cache is cold",
    "idle": "look at that machine: another program, a slow clock, or work that the profiler does not record",
}


def _load(imbalance: float | None) -> str:
    return "" if imbalance is None else f" The busiest rank computes {quantities.ratio(imbalance)} times the mean."


def _of_it(share: float) -> str:
    """`, 43 % of it`, behind a time of a step; '' for what is more than all of it."""
    part = part_of_step(share).value
    return "" if part is None else f", {wording.percent(part)} of it"


@describe.register
def _(finding: NoCollective) -> str:
    return f"No collective is in the traces of all ranks: who waits for whom cannot be said.{_load(finding.imbalance)}"


@describe.register
def _(finding: UntoldGroups) -> str:
    return (
        "Who waits for whom cannot be said: the job has groups of ranks, and the traces do not say of which group "
        f"a collective is.{_load(finding.imbalance)}"
    )


@describe.register
def _(finding: NoSlowRank) -> str:
    of = wording.plural(finding.collectives, "collective")
    who = f"rank {finding.latest} comes last most often, to {finding.last:,} of {of}"
    who = who if finding.last else "none comes last as far as clocks can tell"
    none = "No rank is slow all the time" if finding.sometimes else "No rank is slow"
    spent = f"{wording.percent(finding.waiting)} of a step"
    spent = spent if _of_it(finding.waiting) else f"{wording.duration(finding.wait)} a step"
    waits = f"they wait {spent} for each other"
    if finding.hidden and _of_it(finding.exposed):
        waits += f", computing hides all but {wording.percent(finding.exposed)}"
    return f"{none}: {waits}, and {who}.{_load(finding.imbalance)}"


@describe.register
def _(finding: SlowRanks) -> str:
    of_all = f"of {wording.plural(finding.collectives, 'collective')}" + (" of its groups" if finding.groups else "")
    whom = "others" if finding.groups else "all others"
    alone = len(finding.ranks) == 1
    if alone:
        sentence = f"Rank {finding.ranks[0]} is slow: it comes last to {finding.last:,} {of_all} and keeps {whom}"
    else:
        ranks = _named(finding)
        sentence = f"{ranks} are slow: one of them comes last to {finding.last:,} {of_all}, and they keep {whom}"
    shown = f", of which computing hides all but {wording.duration(finding.exposed)}" if finding.hidden else ""
    sentence += f" waiting {wording.duration(finding.held)} a step{shown}{_of_it(finding.share)}."
    if not finding.part:
        return f"{sentence} {'Its' if alone else 'Their'} steps have no part that is longer by as much."
    spends = SPENDS[finding.part][0 if alone else 1].format(wording.duration(finding.theirs))
    most = f", most of the difference in {finding.operation}" if finding.operation else ""
    others = wording.duration(finding.others)
    return f"{sentence} {'It' if alone else 'They'} {spends} a step where the others take {others}{most}."


def _named(finding: SlowRanks) -> str:
    """The slow ones: by their machine where they are all of its ranks, else by their numbers."""
    if finding.machine:
        return f"The {len(finding.ranks):,} ranks of {finding.machine}"
    numbers = [str(rank) for rank in finding.ranks[:MOST_NAMED]]
    if len(finding.ranks) > MOST_NAMED:
        return f"{len(finding.ranks):,} ranks ({', '.join(numbers)}, …)"
    return f"Ranks {wording.join(numbers)}"


@describe.register
def _(finding: LookAtRank) -> str:
    return TRIES[finding.part]


@describe.register
def _(finding: UnmarkedSteps) -> str:
    return "no step is marked: each rank's whole trace counts as one"


@describe.register
def _(finding: UnnumberedSteps) -> str:
    return "steps have no numbers of their own: they are matched in their order"


@describe.register
def _(finding: StepsLeftOut) -> str:
    return f"{finding.steps:,} steps are not in the traces of all ranks: they are left out of what is said of ranks"


@describe.register
def _(finding: MissingRanks) -> str:
    return f"the job had {finding.world:,} ranks and {finding.here:,} are here: the last to come may be another"


@describe.register
def _(finding: MatchedOverGroups) -> str:
    return (
        f"the job has groups of {finding.smallest} ranks, and the traces do not say of which group a collective is: "
        "these are matched by their order over all ranks, so that some may be matched wrongly"
    )


@describe.register
def _(finding: PartialGroups) -> str:
    return f"{finding.groups:,} groups have ranks that are not here: the last to come may be one of them"


@describe.register
def _(finding: UnmatchedCollectives) -> str:
    return f"{finding.collectives:,} collectives have no partner on every rank, or lie outside steps: left out"


@describe.register
def _(finding: ImpossibleCollectives) -> str:
    return f"{finding.collectives:,} collectives would have been left before the last rank came: left out"


@describe.register
def _(finding: ComparedClocks) -> str:
    return (
        f"clocks of {finding.clocks} machines or processes are compared by the ends of collectives; they may still "
        f"differ by {finding.doubt / 1e3:,.1f} µs"
    )


@describe.register
def _(finding: SeparateClocks) -> str:
    return f"{finding.sets:,} sets of ranks share no collective: their clocks are not compared"


@describe.register
def _(finding: CriticalRank) -> str:
    of = _rank(finding.rank, finding.device)
    sentence = f"{finding.part}: step, phases, layers and rates are those of {of}"
    if finding.alike:
        return f"{sentence}; ranks work alike"
    if finding.waiting is None:
        return sentence
    waits = f"{sentence}, which works longest; {_rank(finding.waiting, finding.waiting_device)} waits"
    if finding.share is None:
        return f"{waits} {wording.duration(finding.waited)} a step"
    return f"{waits} {wording.percent(finding.share)} of its step"


def _rank(rank: int, device: str) -> str:
    """A rank with its device: `rank 1 (cpu/1)`."""
    return f"rank {rank}" + (f" ({device})" if device else "")


# ---- Groups of ranks ------------------------------------------------------------------------------------------------


def group_words(group: GroupTime, step: float) -> str:
    """How far apart the ranks of a group come, and whom they wait for; `step` is what a step takes, ns."""
    skew = f"its ranks come within {wording.duration(group.skew)} of each other on average"
    if group.latest < 0:
        return f"{skew}, and none comes last as far as clocks can tell."
    last = f"rank {group.latest} comes last to {group.last:,} of {wording.plural(group.collectives, 'collective')}"
    held = f"keeps the others waiting {wording.duration(group.held)} a step"
    share = group.held / step if step else 0.0
    if share < WORTH or group.last < MOSTLY * group.collectives:
        return f"{skew}; {last} and {held}."
    return f"{last} and {held}{_of_it(share)}; {skew}."


def matching_words(job: ImportedJob) -> str:
    """How collectives were matched."""
    if not any(group.name for group in job.groups):
        return "matched by their order"
    whole = "of each group" if all(group.name for group in job.groups) else "of each group that is said"
    by = {group.numbered for group in job.groups if group.name}
    how = "their numbers" if by == {True} else "their order" if by == {False} else "their numbers or their order"
    return f"those {whole} matched by {how}"
