"""Collectives of several ranks matched with one another, by the group of ranks that each is of.

They are the same one where they are of the same group, do the same, lie in the same step and have the same number in
their group, which newer profilers write; without numbers, the same place in the order. Where a trace does not say
groups, all ranks are one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sonda.analysis.collectives import RankCollectives, symmetric
from sonda.record.rank_group import RankGroup

Key = tuple[str, tuple[int, ...], bool]
"""A group: its name, which others may have too, its ranks, and whether more are not named."""
ALL: Key = ("", (), False)
"""The group of collectives that do not say theirs."""
Place = tuple[int, Key, str]
"""What can be the same one: the place of a step or -1, a group, and what is done."""


@dataclass(frozen=True)
class Matched:
    """Collectives that all ranks of a group have; a row for each of these ranks, a column for each collective, ns."""

    rows: tuple[int, ...]
    """The places of its ranks among all."""
    steps: np.ndarray
    """By collective: the place of its step."""
    start: np.ndarray
    end: np.ndarray
    name: str = ""
    """'' where the trace does not say groups."""
    description: str = ""
    missing: int = 0
    """Ranks of the group whose traces are not here."""
    numbered: bool = False
    """Whether all are matched by their numbers, not by their order."""


@dataclass(frozen=True)
class Matches:
    """By group, and what is left over."""

    groups: tuple[Matched, ...]
    unmatched: int
    """Those in which nobody can leave before all have come, of all ranks together, that found no partner."""


def match(
    ranks: Sequence[RankCollectives],
    steps: Mapping[int, tuple[np.ndarray, np.ndarray]],
    known: Sequence[RankGroup] = (),
) -> Matches:
    """`steps` are beginnings and ends of the steps that all ranks have, by rank, in the order of their places;
    `known` are groups that heads of traces name in full.

    Where ranks have different numbers of a collective in a step, none of them is matched: nobody knows which is which.
    """
    found = [_places(one, known, *steps[one.rank]) for one in ranks]
    described: dict[Key, str] = {}
    members: dict[Key, dict[int, None]] = {}
    for row, one in enumerate(ranks):
        for key, text in _keys(one, known).items():
            described.setdefault(key, text)
            members.setdefault(key, {})[row] = None
    unmatched, groups = 0, []
    for key, users in members.items():
        rows = _members(key, list(users), [one.rank for one in ranks])
        if len(key[1]) == 1 and not key[2]:
            continue  # nobody waits there
        mine, columns = [found[row] for row in rows], []
        numbered = True
        for place in dict.fromkeys(place for one in mine for place in one if place[1] == key):
            rest, more, by_number = _columns([one.get(place, NOTHING) for one in mine], place[0] >= 0 and len(rows) > 1)
            unmatched += rest
            columns += [(place[0], column) for column in more]
            numbered &= by_number or not more
        if columns:
            begins = steps[ranks[rows[0]].rank][0]
            columns.sort(key=lambda one: (one[0], one[1][0, 0] - begins[one[0]]))
            times = np.stack([column for _, column in columns], axis=2)
            missing = max(0, len(key[1]) - len(rows)) if key[0] else 0
            places = np.array([step for step, _ in columns])
            groups.append(Matched(tuple(rows), places, times[0], times[1], key[0], described[key], missing, numbered))
    return Matches(tuple(groups), unmatched)


NOTHING = np.zeros((3, 0), np.int64)


def _columns(of_ranks: Sequence[np.ndarray], possible: bool) -> tuple[int, list[np.ndarray], bool]:
    """Of what can be the same on these ranks: how many have no partner, starts and ends of the others, and whether they
    were found by their numbers."""
    every = sum(one.shape[1] for one in of_ranks)
    if not possible:
        return every, [], True
    by_number = all((one[2] >= 0).all() for one in of_ranks)
    columns: list[np.ndarray] = []
    # A number may come twice, where several are launched as one.
    for number in np.unique(np.concatenate([one[2] for one in of_ranks])).tolist() if by_number else [None]:
        mine = [one if number is None else one[:, one[2] == number] for one in of_ranks]
        if len({one.shape[1] for one in mine}) == 1:
            times = np.stack([one[:2] for one in mine], axis=1)
            columns += [times[:, :, at] for at in range(times.shape[2])]
    return every - len(columns) * len(of_ranks), columns, by_number


def _key(group: RankGroup | None, rank: int, known: Sequence[RankGroup]) -> Key:
    if group is None:
        return ALL
    ranks, cut = group.ranks, group.cut or not group.ranks
    if cut:
        whole = [one.ranks for one in known if one.group == group.group and rank in one.ranks
                 and one.ranks[: len(ranks)] == ranks]  # fmt: skip
        if len(whole) == 1:
            ranks, cut = whole[0], False
    return group.group, ranks, cut


def _keys(one: RankCollectives, known: Sequence[RankGroup]) -> dict[Key, str]:
    """The groups of a rank's collectives, and their descriptions."""
    return {
        _key(group, one.rank, known): "" if group is None else group.description
        for group in dict.fromkeys(one.groups)
    }  # fmt: skip


def _members(key: Key, users: list[int], ranks: list[int]) -> list[int]:
    """Rows of the ranks of a group: those it names, as long as only these use it; else those who use it."""
    if key == ALL:
        return list(range(len(ranks)))
    if key[1] and not key[2] and all(ranks[row] in key[1] for row in users):
        return [row for row, rank in enumerate(ranks) if rank in key[1]]
    return users


def _places(
    one: RankCollectives, known: Sequence[RankGroup], begin: np.ndarray, end: np.ndarray
) -> dict[Place, np.ndarray]:
    """Starts, ends and numbers by what they can be the same as."""
    start, finish, made, numbers = one.start, one.finish, one.made, one.numbers
    order = np.argsort(begin, kind="stable")
    at = np.searchsorted(begin[order], made, "right") - 1
    inside = (at >= 0) & (made < end[order][np.maximum(at, 0)]) if len(begin) else np.zeros(len(made), bool)
    place = np.where(inside, order[np.maximum(at, 0)], -1) if len(begin) else np.full(len(made), -1)
    keys = {group: _key(group, one.rank, known) for group in dict.fromkeys(one.groups)}
    found: dict[Place, list[int]] = {}
    for row, (name, group, step) in enumerate(zip(one.names, one.groups, place.tolist(), strict=True)):
        what = (symmetric(group.collective) if group is not None else "") or symmetric(name)
        if what:
            found.setdefault((step, keys[group], what), []).append(row)
    return {key: np.stack((start[rows], finish[rows], numbers[rows])) for key, rows in found.items()}
