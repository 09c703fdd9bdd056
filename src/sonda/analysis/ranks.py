"""Several ranks of one job: who is slow, who waits for whom, and what the slow one spends its time on.

Steps are matched by their numbers. Times of different machines are compared only through collectives (`arrivals.py`);
everything else is a length of time on a rank's own clock.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sonda.analysis.arrivals import Arrivals, arrivals, late_ones
from sonda.analysis.collectives import collectives_of, match
from sonda.analysis.rank_steps import Key, RankSteps, steps_of
from sonda.analysis.step_breakdown import COMPUTE, PARTS
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
    """In collectives, for those who came later."""
    transfer: float
    """In collectives, after the last had come."""
    last: int
    """How many collectives it came to as the last."""
    held: float
    """How long it kept all others waiting: from the last arrival but one to its own."""
    offset: int
    """ns that its clock was found to be ahead of the first rank's."""
    operations: dict[str, float]
    """Own time of operations by name."""

    @property
    def compute(self) -> float:
        return self.parts[PARTS[COMPUTE]]


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
    late_held: float = 0.0
    """ns a step that they together kept the others waiting."""

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
    matched = match(list(collectives.values()), borders, len(common))
    came = arrivals(matched, hosts)
    parts = np.stack([one.parts[places[rank]] for rank, one in steps.items()])
    durations = np.stack([end - begin for begin, end in borders.values()])
    wait = np.zeros(durations.shape, np.int64)
    for row in range(len(wait)):
        np.add.at(wait[row], came.steps, came.wait[row])
    ranks = tuple(_rank_time(row, one, hosts, parts[row], came, len(common)) for row, one in enumerate(steps.values()))
    notes = _notes(run, steps, len(common), matched.unmatched, came)
    late = late_ones(came)
    return Job(
        ranks, tuple(common), durations, parts[:, :, COMPUTE], wait, len(came.last), int((came.last < 0).sum()),
        came.clocks, came.doubt, all(one.marked for one in steps.values()), tuple(notes),
        tuple(ranks[row] for row in late.rows), late.last, late.held / len(common),
    )  # fmt: skip


def _rank_time(row: int, steps: RankSteps, hosts: list[str], parts: np.ndarray, came: Arrivals, count: int) -> RankTime:
    mine = came.last == row
    return RankTime(
        rank=steps.rank, host=hosts[row] if hosts else "", step=float(parts.sum()) / count,
        parts={name: float(parts[:, at].sum()) / count for at, name in enumerate(PARTS)},
        wait=float(came.wait[row].sum()) / count, transfer=float(came.transfer[row].sum()) / count,
        last=int(mine.sum()), held=float(came.held[mine].sum()) / count, offset=int(came.offsets[row]),
        operations={name: time / len(steps.keys) for name, time in steps.operations.items()},
    )  # fmt: skip


def _notes(run: Run, steps: dict[int, RankSteps], common: int, unmatched: int, came: Arrivals) -> list[str]:
    """What a reader of the job's numbers must know."""
    said = []
    if not all(one.marked for one in steps.values()):
        said.append("no step is marked: each rank's whole trace counts as one")
    elif not all(one.numbered for one in steps.values()):
        said.append("steps have no numbers of their own: they are matched in their order")
    left = sum(len(one.keys) - common for one in steps.values())
    if left:
        said.append(f"{left:,} steps are not in the traces of all ranks: they are left out of what is said of ranks")
    world = run.info.workload.get("world")
    if isinstance(world, int) and world > len(steps):
        said.append(f"the job had {world:,} ranks and {len(steps):,} are here: the last to come may be another")
    group = run.info.workload.get("smallest_group")
    if isinstance(group, int) and group < len(steps):
        said.append(
            f"some collectives are of {group} ranks only: all are matched by their order, so that these may be matched "
            "wrongly"
        )
    if unmatched:
        said.append(f"{unmatched:,} collectives have no partner on every rank, or lie outside steps: left out")
    if came.impossible:
        said.append(f"{came.impossible:,} collectives would have been left before the last rank came: left out")
    if came.clocks > 1:
        said.append(
            f"clocks of {came.clocks} machines or processes are compared by the ends of collectives; they may still "
            f"differ by {came.doubt / 1e3:,.1f} µs"
        )
    return said
