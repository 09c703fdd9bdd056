"""Who comes last to collectives, and how long the others wait, on clocks that need not agree.

Nobody can leave such a collective before the last has come. Ranks that name the same machine share its clock. Where
all do, and no collective contradicts it, nothing is corrected; else clocks are compared (`rank_clocks.py`). What
remains contradictory is left out and counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sonda.analysis.ranks.clocks import clock_offsets, no_offsets
from sonda.analysis.ranks.collectives import Matched

CONTRADICTED = 0.01
"""Share of collectives that could not have been on one clock, above which it is not taken for one."""


@dataclass(frozen=True)
class Arrivals:
    """Of one group: a row for each of its ranks, a column for each collective that is possible; ns."""

    group: Matched
    steps: np.ndarray
    """By collective: the place of its step."""
    came: np.ndarray
    """When a rank came, on its own clock."""
    wait: np.ndarray
    """From a rank's arrival to the last one's."""
    transfer: np.ndarray
    """From the last one's arrival to a rank's leaving."""
    last: np.ndarray
    """By collective: the rank that came last, by its place among all of the job, -1 where all came at once as far as
    clocks can tell."""
    held: np.ndarray
    """By collective: from the last arrival but one to the last."""
    skew: np.ndarray
    """By collective: from the first arrival to the last."""
    offsets: np.ndarray
    """By rank: the median of what was taken off its clock."""
    impossible: int
    """Collectives left out, because somebody would have left before the last had come."""


@dataclass(frozen=True)
class Came:
    """All groups."""

    groups: tuple[Arrivals, ...]
    doubt: int
    """ns by which clocks may still differ. 0 on one clock."""
    clocks: int
    """How many were told apart."""
    apart: int
    """How many sets of clocks cannot be compared with one another; 1 where all can."""

    def times(self, row: int, steps: int) -> tuple[np.ndarray, np.ndarray]:
        """ns by step that a rank waited, and that it transferred after the last had come; what passes in several
        collectives at the same time is counted once."""
        mine = [
            (arrivals_of, arrivals_of.group.rows.index(row))
            for arrivals_of in self.groups
            if row in arrivals_of.group.rows
        ]
        waited, transferred = np.zeros(steps, np.int64), np.zeros(steps, np.int64)
        if mine:
            came = np.concatenate([arrivals_of.came[at] for arrivals_of, at in mine])
            last = came + np.concatenate([arrivals_of.wait[at] for arrivals_of, at in mine])
            left = last + np.concatenate([arrivals_of.transfer[at] for arrivals_of, at in mine])
            places = np.concatenate([arrivals_of.steps for arrivals_of, _ in mine])
            np.add.at(waited, places, once(came, last))
            np.add.at(transferred, places, once(last, left))
        return waited, transferred

    @property
    def count(self) -> int:
        return sum(len(group.last) for group in self.groups)

    @property
    def impossible(self) -> int:
        return sum(group.impossible for group in self.groups)

    def offset(self, row: int) -> int:
        """What was taken off a rank's clock, 0 where nothing is known."""
        mine = [(len(group.steps), int(group.offsets[group.group.rows.index(row)])) for group in self.groups
                if row in group.group.rows]  # fmt: skip
        return max(mine, default=(0, 0))[1]


def arrivals(groups: Sequence[Matched], ranks: int, hosts: Sequence[str] = (), mixed: bool = False) -> Came:
    """`hosts` are the names of the ranks' machines, empty where files do not say.

    `mixed`: collectives that were matched may be of different groups, so that what contradicts a clock may be that.
    """
    offsets, clocks = no_offsets(groups), 1
    every = sum(len(group.steps) for group in groups)
    against = sum(int((group.start.max(axis=0) > group.end.min(axis=0)).sum()) for group in groups)
    one_clock = len(hosts) == ranks and len(set(hosts)) == 1
    if every and not (one_clock and (mixed or against / every <= CONTRADICTED)):
        names = list(hosts) if len(hosts) == ranks and not one_clock else [str(rank) for rank in range(ranks)]
        taking_part = {row for group in groups for row in group.rows}
        clocks = len({name for row, name in enumerate(names) if row in taking_part})
        offsets = clock_offsets(groups, names)
    by_group = tuple(
        _arrivals(group, offset, offsets.doubt) for group, offset in zip(groups, offsets.groups, strict=True)
    )
    return Came(by_group, offsets.doubt, clocks, offsets.apart)


def once(begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Lengths of intervals of one clock without what those that began before have covered: their sum is the length of
    the union."""
    order = np.argsort(begin, kind="stable")
    first, last = begin[order], end[order]
    covered = np.maximum.accumulate(last)
    first[1:] = np.maximum(first[1:], covered[:-1])
    first_only = np.empty_like(first)
    first_only[order] = np.maximum(last - first, 0)
    return first_only


def _arrivals(group: Matched, offset: np.ndarray, doubt: int) -> Arrivals:
    arrived, left = group.start - offset, group.end - offset
    last = arrived.max(axis=0)
    possible = last <= left.min(axis=0) + doubt
    arrived, left, last = arrived[:, possible], left[:, possible], last[possible]
    ordered = np.sort(arrived, axis=0)
    skew = ordered[-1] - ordered[0]
    together = skew <= doubt
    rows = np.array(group.rows)
    return Arrivals(
        group=group, steps=group.steps[possible], came=group.start[:, possible], wait=last - arrived,
        transfer=np.maximum(left - last, 0),
        last=np.where(together, -1, rows[np.argmax(arrived, axis=0)]) if len(last) else np.zeros(0, np.int64),
        held=np.where(together, 0, ordered[-1] - ordered[-2]), skew=skew,
        offsets=np.median(offset, axis=1).astype(np.int64), impossible=int((~possible).sum()),
    )  # fmt: skip


@dataclass(frozen=True)
class Late:
    """Ranks that the others wait for."""

    rows: tuple[int, ...]
    """Which; at most half of all."""
    last: int
    """How many collectives one of them came to as the last."""
    of: int
    """Of how many in which one of them takes part."""
    held: int
    """ns in all, from the arrival of the last of the others to the last of all; of the group that waits longest,
    because groups wait at the same time."""


def late_ones(came: Came, wait: np.ndarray) -> Late:
    """Those who wait least, up to the largest gap among the waits of ranks: a slow machine has several.

    `wait` is ns by rank.
    """
    taking_part = np.zeros(len(wait), bool)
    for group in came.groups:
        taking_part[list(group.group.rows)] |= bool(len(group.last))
    here = np.flatnonzero(taking_part)
    if len(here) < 2:
        return Late((), 0, 0, 0)
    order = here[np.argsort(wait[here], kind="stable")]
    size = int(np.argmax(np.diff(wait[order])[: len(order) // 2])) + 1
    late = order[:size]
    last, of, held_ns = 0, 0, 0
    for group in came.groups:
        mine = np.isin(group.group.rows, late)
        if mine.any() and not mine.all():
            last += int(np.isin(group.last, late).sum())
            of += len(group.last)
            least = group.wait[~mine].min(axis=0)
            end = (group.came + group.wait)[~mine][0]  # when the last came, on the clock of one of those who waited
            held_ns = max(held_ns, int(once(end - np.where(least > came.doubt, least, 0), end).sum()))
    return Late(tuple(sorted(late.tolist())), last, of, held_ns)
