"""Several ranks of one job: who is slow, who waits for whom, and what the slow one spends its time on.

Steps are matched by their numbers. Times of different machines are compared only through collectives (`arrivals.py`);
everything else is a length of time on a rank's own clock.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sonda.analysis.findings import Finding
from sonda.analysis.ranks.arrivals import Arrivals, Came, arrivals, late_ones, once
from sonda.analysis.ranks.collectives import collectives_of, match_collectives
from sonda.analysis.ranks.findings import (
    ComparedClocks,
    ImpossibleCollectives,
    MatchedOverGroups,
    MissingRanks,
    PartialGroups,
    SeparateClocks,
    StepsLeftOut,
    UnmarkedSteps,
    UnmatchedCollectives,
    UnnumberedSteps,
)
from sonda.analysis.ranks.steps import Key, RankSteps, steps_of
from sonda.analysis.traces.step_breakdown import COMMUNICATION, COMPUTE, PARTS
from sonda.record.conventions.rank_group import RankGroup
from sonda.record.run import Run


@dataclass(frozen=True)
class RankTime:
    """One rank over the steps that all have; times are ns a step, on average."""

    rank: int
    host: str
    """Its machine, '' where the file does not say."""
    step: float
    parts: dict[str, float]
    """By `step_breakdown.PARTS`: they add up to the step."""
    wait: float
    """In collectives, for those who came later; in several at the same time, once."""
    transfer: float
    """In collectives, after the last had come; likewise."""
    collectives: int
    """How many it took part in: matched, and possible."""
    last: int
    """How many of them it came to as the last."""
    held: float
    """How long it kept all others waiting: from the last arrival but one to its own; of its groups the longest, because
    groups wait at the same time."""
    offset: int
    """ns that its clock was found to be ahead of the first rank's."""
    operations: dict[str, float]
    """Own time of operations by name."""

    @property
    def compute(self) -> float:
        return self.parts[PARTS[COMPUTE]]

    @property
    def exposed(self) -> float:
        """Communication that no computing hides."""
        return self.parts[PARTS[COMMUNICATION]]

    @property
    def exposed_wait(self) -> float:
        """The most that it can have waited for others without computing meanwhile."""
        return min(self.wait, self.exposed)


@dataclass(frozen=True)
class GroupTime:
    """One group of ranks that communicate; times are ns."""

    name: str
    """'' where the traces do not say groups: then all ranks are one."""
    description: str
    ranks: tuple[int, ...]
    missing: int
    """Ranks of the group whose traces are not here."""
    collectives: int
    together: int
    numbered: bool
    """Whether its collectives are matched by their numbers, not by their order."""
    skew: float
    """From the first arrival to the last, the mean over collectives."""
    worst: float
    """The largest of them."""
    wait: float
    """A step, the mean over its ranks."""
    latest: int
    """The rank that keeps the others waiting longest; -1 where nobody comes last."""
    last: int
    """How many of its collectives that rank came to as the last."""
    held: float
    """How long that rank kept all others of the group waiting, a step."""


@dataclass(frozen=True)
class ImportedJob:
    """The ranks of one imported run. Arrays have a row for each rank and a column for each step, ns."""

    ranks: tuple[RankTime, ...]
    steps: tuple[Key, ...]
    """Those that all ranks have."""
    durations: np.ndarray
    compute: np.ndarray
    wait: np.ndarray
    collectives: int
    """Matched, and possible."""
    together: int
    """Those of them to which all came at once, as far as clocks can tell."""
    clocks: int
    doubt: int
    """ns by which clocks of different machines may still differ."""
    marked: bool
    """Whether steps are marked; else the whole trace counts as one."""
    notes: tuple[Finding, ...]
    late: tuple[RankTime, ...] = ()
    """Those that the others wait for, slow or not."""
    late_last: int = 0
    """How many collectives one of them came to as the last."""
    late_of: int = 0
    """Of how many in which one of them takes part."""
    late_held: float = 0.0
    """ns a step that they together kept the others waiting."""
    groups: tuple[GroupTime, ...] = ()
    """Those with matched collectives; one of all ranks where the traces do not say groups."""
    mixed: bool = False
    """Whether collectives of smaller groups were matched with one another: some of them cannot have been one."""

    @property
    def imbalance(self) -> float:
        """The largest compute of a rank over the mean of all; NaN where nothing computes."""
        compute = [rank.compute for rank in self.ranks]
        mean = sum(compute) / len(compute)
        return max(compute) / mean if mean else float("nan")

    @property
    def late_exposed(self) -> float:
        """The most of `late_held` that computing of the others does not hide."""
        others = [rank.exposed for rank in self.ranks if rank not in self.late]
        return min(self.late_held, *others) if others else self.late_held

    @property
    def step(self) -> float:
        """ns of a step, the mean over ranks."""
        return float(self.durations.mean()) if self.durations.size else 0.0

    @property
    def own(self) -> np.ndarray:
        """What a step takes a rank without waiting for others."""
        own: np.ndarray = np.maximum(self.durations - self.wait, 0)
        return own


def is_job(run: Run) -> bool:
    """Whether a run holds traces of several ranks."""
    return run.info.kind == "imported" and (run.info.workload.ranks or 1) > 1


def job_of(run: Run) -> ImportedJob | None:
    """The ranks of an imported run; None where no step is common to all of them."""
    collectives = collectives_of(run)
    steps = steps_of(run, collectives)
    every = [set(rank_steps.keys) for rank_steps in steps.values()]
    common = [key for key in steps[min(steps)].keys if all(key in keys for keys in every)] if steps else []
    if not common or len(steps) < 2:
        return None
    places = {}
    for rank, rank_steps in steps.items():
        at = {key: place for place, key in enumerate(rank_steps.keys)}
        places[rank] = [at[key] for key in common]
    borders = {
        rank: (rank_steps.starts[places[rank]], rank_steps.ends[places[rank]]) for rank, rank_steps in steps.items()
    }
    hosts = run.info.workload.hosts or []
    hosts = hosts if len(hosts) == len(steps) else []
    matched = match_collectives(list(collectives.values()), borders, known_groups(run))
    mixed = _smaller_groups(run, len(steps)) > 0 and any(not group.name for group in matched.groups)
    came = arrivals(matched.groups, len(steps), hosts, mixed)
    parts = np.stack([rank_steps.parts[places[rank]] for rank, rank_steps in steps.items()])
    durations = np.stack([end - begin for begin, end in borders.values()])
    times = [came.times(row, len(common)) for row in range(len(steps))]
    wait = np.stack([waited for waited, _ in times])
    ranks = tuple(
        _rank_time(row, rank_steps, hosts, parts[row], came, times[row])
        for row, rank_steps in enumerate(steps.values())
    )
    notes = _notes(run, steps, len(common), matched.unmatched, came)
    late = late_ones(came, wait.sum(axis=1))
    groups = tuple(_group_time(group, list(steps), len(common)) for group in came.groups if len(group.last))
    return ImportedJob(
        ranks, tuple(common), durations, parts[:, :, COMPUTE], wait, came.count,
        sum(group.together for group in groups), came.clocks, came.doubt,
        all(rank_steps.marked for rank_steps in steps.values()), tuple(notes),
        tuple(ranks[row] for row in late.rows), late.last, late.of,
        late.held / len(common), groups, mixed and bool(matched.unmatched or came.impossible),
    )  # fmt: skip


def known_groups(run: Run) -> list[RankGroup]:
    """The groups that heads of the run's traces name with all of their ranks."""
    groups = run.info.workload.groups or []
    return [RankGroup(group.name, group.description, tuple(group.ranks)) for group in groups if group.ranks]


def _smaller_groups(run: Run, ranks: int) -> int:
    """How many ranks the smallest group has, 0 where it has all of them or nothing is said."""
    size = run.info.workload.smallest_group
    return size if size is not None and size < ranks else 0


def _group_time(arrived: Arrivals, ranks: list[int], count: int) -> GroupTime:
    group = arrived.group
    held_by_row = {row: _held_ns(arrived, row) for row in group.rows}
    wait = sum(int(once(came, came + waited).sum()) for came, waited in zip(arrived.came, arrived.wait, strict=True))
    latest = max(held_by_row, key=lambda row: (held_by_row[row], (arrived.last == row).sum()))
    last = int((arrived.last == latest).sum())
    return GroupTime(
        group.name, group.description, tuple(ranks[row] for row in group.rows), group.missing, len(arrived.last),
        int((arrived.last < 0).sum()), group.numbered, float(arrived.skew.mean()), float(arrived.skew.max()),
        wait / len(group.rows) / count, ranks[latest] if last else -1, last, held_by_row[latest] / count,
    )  # fmt: skip


def _held_ns(arrived: Arrivals, row: int) -> int:
    """ns in all that a rank kept all others of a group waiting; collectives that wait at the same time count once."""
    mine = arrived.last == row
    came = arrived.came[arrived.group.rows.index(row)][mine]
    return int(once(came - arrived.held[mine], came).sum())


def _rank_time(
    row: int, steps: RankSteps, hosts: list[str], parts: np.ndarray, came: Came, times: tuple[np.ndarray, np.ndarray]
) -> RankTime:
    mine = [group for group in came.groups if row in group.group.rows]
    waited, transferred = times
    count = len(waited)
    return RankTime(
        rank=steps.rank, host=hosts[row] if hosts else "", step=float(parts.sum()) / count,
        parts={name: float(parts[:, at].sum()) / count for at, name in enumerate(PARTS)},
        wait=float(waited.sum()) / count, transfer=float(transferred.sum()) / count,
        collectives=sum(len(group.last) for group in mine), last=sum(int((one.last == row).sum()) for one in mine),
        held=max((_held_ns(group, row) for group in mine), default=0) / count,
        offset=came.offset(row),
        operations={name: time / len(steps.keys) for name, time in steps.operations.items()},
    )  # fmt: skip


def _notes(run: Run, steps: dict[int, RankSteps], common: int, unmatched: int, came: Came) -> list[Finding]:
    """What a reader of the job's numbers must know."""
    notes: list[Finding] = []
    if not all(rank_steps.marked for rank_steps in steps.values()):
        notes.append(UnmarkedSteps())
    elif not all(rank_steps.numbered for rank_steps in steps.values()):
        notes.append(UnnumberedSteps())
    left = sum(len(rank_steps.keys) - common for rank_steps in steps.values())
    if left:
        notes.append(StepsLeftOut(left))
    world = run.info.workload.world
    if world is not None and world > len(steps):
        notes.append(MissingRanks(world, len(steps)))
    smallest = _smaller_groups(run, len(steps))
    if smallest and any(not group.group.name for group in came.groups):
        notes.append(MatchedOverGroups(smallest))
    missing = sum(group.group.missing > 0 for group in came.groups)
    if missing and not (world is not None and world > len(steps)):
        notes.append(PartialGroups(missing))
    if unmatched:
        notes.append(UnmatchedCollectives(unmatched))
    if came.impossible:
        notes.append(ImpossibleCollectives(came.impossible))
    if came.clocks > 1:
        notes.append(ComparedClocks(came.clocks, came.doubt))
    if came.apart > 1:
        notes.append(SeparateClocks(came.apart))
    return notes
