"""Several ranks of one job: who is slow, who waits for whom, and what the slow one spends its time on.

Steps are matched by their numbers. Times of different machines are compared only through collectives (`arrivals.py`);
everything else is a length of time on a rank's own clock.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sonda.analysis.arrivals import Arrivals, Came, arrivals, late_ones, once
from sonda.analysis.collectives import collectives_of
from sonda.analysis.matching import match
from sonda.analysis.rank_steps import Key, RankSteps, steps_of
from sonda.analysis.step_breakdown import COMPUTE, PARTS
from sonda.record.rank_group import RankGroup, said
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
class Job:
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
    notes: tuple[str, ...]
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
    def way(self) -> str:
        """How collectives were matched, in words."""
        if not any(one.name for one in self.groups):
            return "matched by their order"
        whole = "of each group" if all(one.name for one in self.groups) else "of each group that is said"
        by = {one.numbered for one in self.groups if one.name}
        how = "their numbers" if by == {True} else "their order" if by == {False} else "their numbers or their order"
        return f"those {whole} matched by {how}"

    @property
    def imbalance(self) -> float:
        """The largest compute of a rank over the mean of all, the median over steps; NaN where nothing computes."""
        mean = self.compute.mean(axis=0)
        known = mean > 0
        return float(np.median(self.compute.max(axis=0)[known] / mean[known])) if known.any() else float("nan")

    @property
    def step(self) -> float:
        """ns of a step, the mean over ranks."""
        return float(self.durations.mean()) if self.durations.size else 0.0

    @property
    def own(self) -> np.ndarray:
        """What a step takes a rank without waiting for others."""
        return np.maximum(self.durations - self.wait, 0)


def is_job(run: Run) -> bool:
    """Whether a run holds traces of several ranks."""
    ranks = run.info.workload.get("ranks")
    return "imported" in run.info.workload and isinstance(ranks, int) and ranks > 1


def job_of(run: Run) -> Job | None:
    """The ranks of an imported run; None where no step is common to all of them."""
    collectives = collectives_of(run)
    steps = steps_of(run, collectives)
    every = [set(one.keys) for one in steps.values()]
    common = [key for key in steps[min(steps)].keys if all(key in keys for keys in every)] if steps else []
    if not common or len(steps) < 2:
        return None
    places = {}
    for rank, one in steps.items():
        at = {key: place for place, key in enumerate(one.keys)}
        places[rank] = [at[key] for key in common]
    borders = {rank: (one.starts[places[rank]], one.ends[places[rank]]) for rank, one in steps.items()}
    hosts = [str(host) for host in run.info.workload.get("hosts") or []]
    hosts = hosts if len(hosts) == len(steps) else []
    matched = match(list(collectives.values()), borders, known_groups(run))
    mixed = _smaller_groups(run, len(steps)) > 0 and any(not one.name for one in matched.groups)
    came = arrivals(matched.groups, len(steps), hosts, mixed)
    parts = np.stack([one.parts[places[rank]] for rank, one in steps.items()])
    durations = np.stack([end - begin for begin, end in borders.values()])
    times = [came.times(row, len(common)) for row in range(len(steps))]
    wait = np.stack([waited for waited, _ in times])
    ranks = tuple(_rank_time(row, one, hosts, parts[row], came, times[row]) for row, one in enumerate(steps.values()))
    notes = _notes(run, steps, len(common), matched.unmatched, came)
    late = late_ones(came, wait.sum(axis=1))
    groups = tuple(_group_time(one, list(steps), len(common)) for one in came.groups if len(one.last))
    return Job(
        ranks, tuple(common), durations, parts[:, :, COMPUTE], wait, came.count, sum(one.together for one in groups),
        came.clocks, came.doubt, all(one.marked for one in steps.values()), tuple(notes),
        tuple(ranks[row] for row in late.rows), late.last, late.of,
        late.held / len(common), groups, mixed and bool(matched.unmatched or came.impossible),
    )  # fmt: skip


def known_groups(run: Run) -> list[RankGroup]:
    """The groups that heads of the run's traces name with all of their ranks."""
    groups = run.info.workload.get("groups")
    read = [said(one.get("name"), one.get("description"), one.get("ranks"), "") for one in groups or ()
            if isinstance(one, dict)] if isinstance(groups, list) else []  # fmt: skip
    return [one for one in read if one is not None and one.ranks]


def _smaller_groups(run: Run, ranks: int) -> int:
    """How many ranks the smallest group has, 0 where it has all of them or nothing is said."""
    size = run.info.workload.get("smallest_group")
    return size if isinstance(size, int) and size < ranks else 0


def _group_time(one: Arrivals, ranks: list[int], count: int) -> GroupTime:
    group = one.group
    held = {row: _held(one, row) for row in group.rows}
    wait = sum(int(once(came, came + waited).sum()) for came, waited in zip(one.came, one.wait, strict=True))
    latest = max(held, key=lambda row: (held[row], (one.last == row).sum()))
    last = int((one.last == latest).sum())
    return GroupTime(
        group.name, group.description, tuple(ranks[row] for row in group.rows), group.missing, len(one.last),
        int((one.last < 0).sum()), group.numbered, float(one.skew.mean()), float(one.skew.max()),
        wait / len(group.rows) / count, ranks[latest] if last else -1, last, held[latest] / count,
    )  # fmt: skip


def _held(one: Arrivals, row: int) -> int:
    """ns in all that a rank kept all others of a group waiting; collectives that wait at the same time count once."""
    mine = one.last == row
    came = one.came[one.group.rows.index(row)][mine]
    return int(once(came - one.held[mine], came).sum())


def _rank_time(
    row: int, steps: RankSteps, hosts: list[str], parts: np.ndarray, came: Came, times: tuple[np.ndarray, np.ndarray]
) -> RankTime:
    mine = [one for one in came.groups if row in one.group.rows]
    waited, transferred = times
    count = len(waited)
    return RankTime(
        rank=steps.rank, host=hosts[row] if hosts else "", step=float(parts.sum()) / count,
        parts={name: float(parts[:, at].sum()) / count for at, name in enumerate(PARTS)},
        wait=float(waited.sum()) / count, transfer=float(transferred.sum()) / count,
        collectives=sum(len(one.last) for one in mine), last=sum(int((one.last == row).sum()) for one in mine),
        held=max((_held(one, row) for one in mine), default=0) / count,
        offset=came.offset(row),
        operations={name: time / len(steps.keys) for name, time in steps.operations.items()},
    )  # fmt: skip


def _notes(run: Run, steps: dict[int, RankSteps], common: int, unmatched: int, came: Came) -> list[str]:
    """What a reader of the job's numbers must know."""
    notes = []
    if not all(one.marked for one in steps.values()):
        notes.append("no step is marked: each rank's whole trace counts as one")
    elif not all(one.numbered for one in steps.values()):
        notes.append("steps have no numbers of their own: they are matched in their order")
    left = sum(len(one.keys) - common for one in steps.values())
    if left:
        notes.append(f"{left:,} steps are not in the traces of all ranks: they are left out of what is said of ranks")
    world = run.info.workload.get("world")
    if isinstance(world, int) and world > len(steps):
        notes.append(f"the job had {world:,} ranks and {len(steps):,} are here: the last to come may be another")
    smallest = _smaller_groups(run, len(steps))
    if smallest and any(not one.group.name for one in came.groups):
        notes.append(
            f"the job has groups of {smallest} ranks, and the traces do not say of which group a collective is: these "
            "are matched by their order over all ranks, so that some may be matched wrongly"
        )
    missing = sum(one.group.missing > 0 for one in came.groups)
    if missing and not (isinstance(world, int) and world > len(steps)):
        notes.append(f"{missing:,} groups have ranks that are not here: the last to come may be one of them")
    if unmatched:
        notes.append(f"{unmatched:,} collectives have no partner on every rank, or lie outside steps: left out")
    if came.impossible:
        notes.append(f"{came.impossible:,} collectives would have been left before the last rank came: left out")
    if came.clocks > 1:
        notes.append(
            f"clocks of {came.clocks} machines or processes are compared by the ends of collectives; they may still "
            f"differ by {came.doubt / 1e3:,.1f} µs"
        )
    if came.apart > 1:
        notes.append(f"{came.apart:,} sets of ranks share no collective: their clocks are not compared")
    return notes
