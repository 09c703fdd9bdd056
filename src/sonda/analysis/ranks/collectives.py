"""Collectives of several ranks: found in an imported run, and matched with one another by their group of ranks.

Two collectives of two ranks are the same one where group, operation and step are equal and so is the number in the
group, which newer profilers write. Without numbers, the place in the order counts. Where a trace does not say groups,
all ranks are one group.

Only collectives in which nobody can leave before everybody has come say who waits for whom: all-reduce, all-gather,
reduce-scatter, all-to-all and barriers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from sonda.analysis.device.kernels import LATENCY, on_device
from sonda.record.conventions.profile_names import executes_collective
from sonda.record.conventions.rank_group import RankGroup, group_of
from sonda.record.files.tables import read_blocks
from sonda.record.run import Run
from sonda.record.spans import Spans

# ---- Finding collectives in an imported run -------------------------------------------------------------------------

SYMMETRIC = {
    "all-reduce": re.compile(r"all[-_]?reduce", re.IGNORECASE),
    "all-gather": re.compile(r"all[-_]?gather", re.IGNORECASE),
    "reduce-scatter": re.compile(r"reduce[-_]?scatter", re.IGNORECASE),
    "all-to-all": re.compile(r"all[-_]?to[-_]?all", re.IGNORECASE),
    "barrier": re.compile(r"barrier", re.IGNORECASE),
}
"""In names of collectives in which nobody can leave before everybody has come."""
COLUMNS = ("rank", "path", LATENCY, "sequence:counted")

NONE = np.zeros(0, np.int64)


@dataclass
class RankCollectives:
    """The collectives of one rank in the order of their starts; ns on the run's clock."""

    rank: int
    on_device: bool = False
    """Whether the rank has any activity of a device."""
    begin: int = 0
    end: int = 0
    """Of all its events."""
    _blocks: list[tuple[list[str], list[str], np.ndarray, np.ndarray, np.ndarray, np.ndarray]] = field(
        default_factory=list
    )
    _by_device: bool = False
    """Whether a device executes them: then what the host says of collectives is their launching."""
    _events: int = 0

    def feed(self, spans: Spans) -> None:
        """A block."""
        start, length = spans.number("start"), spans.number("duration")
        if not self._events:
            self.begin = int(start[0])
        self._events += len(start)
        self.end = max(self.end, int((start + length).max()))
        kind, name = spans.words("kind"), spans.words("name")
        self.on_device |= bool(len(on_device(spans)))
        rows = np.flatnonzero(kind.equal("collective"))
        if len(rows) and not self._by_device:
            self._by_device, self._blocks = True, []
        if not self._by_device:
            communicating = np.array([executes_collective(word) for word in name.words])
            rows = np.flatnonzero(communicating[name.codes] & kind.equal("op"))
        latency = spans.metric("launch_latency", "measured")[rows]
        launched = start[rows] - np.where(np.isnan(latency), 0, latency).astype(np.int64)
        path = spans.words("path")
        words, labels = ([column.words[code] for code in column.codes[rows].tolist()] for column in (name, path))
        communicating = spans.metric("sequence", "counted")[rows]
        number = np.where(np.isnan(communicating), -1, communicating).astype(np.int64)
        self._blocks.append((words, labels, start[rows], start[rows] + length[rows], launched, number))

    @property
    def names(self) -> list[str]:
        return [name for block in self._blocks for name in block[0]]

    @property
    def groups(self) -> list[RankGroup | None]:
        """Of which group of ranks each is, where the trace says so."""
        labels = [label for block in self._blocks for label in block[1]]
        groups_by_label = {label: group_of(label) for label in set(labels)}
        return [groups_by_label[label] for label in labels]

    @property
    def start(self) -> np.ndarray:
        return np.concatenate([NONE, *(block[2] for block in self._blocks)])

    @property
    def finish(self) -> np.ndarray:
        return np.concatenate([NONE, *(block[3] for block in self._blocks)])

    @property
    def made(self) -> np.ndarray:
        """When each was launched, or began where that is not known: this tells which step it belongs to."""
        return np.concatenate([NONE, *(block[4] for block in self._blocks)])

    @property
    def numbers(self) -> np.ndarray:
        """Which of its group's each is, -1 where the trace does not say."""
        return np.concatenate([NONE, *(block[5] for block in self._blocks)])


def collectives_of(run: Run) -> dict[int, RankCollectives]:
    """By rank; memory grows with collectives only."""
    by_rank: dict[int, RankCollectives] = {}
    for spans in read_blocks(run, COLUMNS):
        if len(spans):
            rank = int(spans.number("rank")[0])  # a block holds one rank
            by_rank.setdefault(rank, RankCollectives(rank)).feed(spans)
    return dict(sorted(by_rank.items()))


def symmetric(name: str) -> str:
    """What a collective is in which nobody can leave before everybody has come; '' for others."""
    return next((word for word, pattern in SYMMETRIC.items() if pattern.search(name)), "")


# ----------------------------------------------------------------------------------------------------------------------

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


def match_collectives(
    ranks: Sequence[RankCollectives],
    steps: Mapping[int, tuple[np.ndarray, np.ndarray]],
    known: Sequence[RankGroup] = (),
) -> Matches:
    """`steps` are beginnings and ends of the steps that all ranks have, by rank, in the order of their places;
    `known` are groups that heads of traces name in full.

    Where ranks have different numbers of a collective in a step, none of them is matched: nobody knows which is which.
    """
    places_of_ranks = [_places(rank, known, *steps[rank.rank]) for rank in ranks]
    described: dict[Key, str] = {}
    members: dict[Key, dict[int, None]] = {}
    for row, rank in enumerate(ranks):
        for key, text in _keys(rank, known).items():
            described.setdefault(key, text)
            members.setdefault(key, {})[row] = None
    unmatched, groups = 0, []
    for key, users in members.items():
        rows = _members(key, list(users), [rank.rank for rank in ranks])
        if len(key[1]) == 1 and not key[2]:
            continue  # nobody waits there
        mine, columns = [places_of_ranks[row] for row in rows], []
        numbered = True
        for place in dict.fromkeys(place for places_of_rank in mine for place in places_of_rank if place[1] == key):
            rest, more, by_number = _columns(
                [places_of_rank.get(place, NOTHING) for places_of_rank in mine], place[0] >= 0 and len(rows) > 1
            )
            unmatched += rest
            columns += [(place[0], column) for column in more]
            numbered &= by_number or not more
        if columns:
            begins = steps[ranks[rows[0]].rank][0]
            columns.sort(key=lambda column: (column[0], column[1][0, 0] - begins[column[0]]))
            times = np.stack([column for _, column in columns], axis=2)
            missing = max(0, len(key[1]) - len(rows)) if key[0] else 0
            places = np.array([step for step, _ in columns])
            groups.append(Matched(tuple(rows), places, times[0], times[1], key[0], described[key], missing, numbered))
    return Matches(tuple(groups), unmatched)


NOTHING = np.zeros((3, 0), np.int64)


def _columns(of_ranks: Sequence[np.ndarray], possible: bool) -> tuple[int, list[np.ndarray], bool]:
    """Of what can be the same on these ranks: how many have no partner, starts and ends of the others, and whether they
    were found by their numbers."""
    every = sum(table.shape[1] for table in of_ranks)
    if not possible:
        return every, [], True
    by_number = all((table[2] >= 0).all() for table in of_ranks)
    columns: list[np.ndarray] = []
    # A number may come twice, where several are launched as one.
    for number in np.unique(np.concatenate([table[2] for table in of_ranks])).tolist() if by_number else [None]:
        mine = [table if number is None else table[:, table[2] == number] for table in of_ranks]
        if len({table.shape[1] for table in mine}) == 1:
            times = np.stack([table[:2] for table in mine], axis=1)
            columns += [times[:, :, at] for at in range(times.shape[2])]
    return every - len(columns) * len(of_ranks), columns, by_number


def _key(group: RankGroup | None, rank: int, known: Sequence[RankGroup]) -> Key:
    if group is None:
        return ALL
    ranks, cut = group.ranks, group.cut or not group.ranks
    if cut:
        whole = [
            other.ranks for other in known
            if other.group == group.group and rank in other.ranks and other.ranks[: len(ranks)] == ranks
        ]  # fmt: skip
        if len(whole) == 1:
            ranks, cut = whole[0], False
    return group.group, ranks, cut


def _keys(collectives: RankCollectives, known: Sequence[RankGroup]) -> dict[Key, str]:
    """The groups of a rank's collectives, and their descriptions."""
    return {
        _key(group, collectives.rank, known): "" if group is None else group.description
        for group in dict.fromkeys(collectives.groups)
    }  # fmt: skip


def _members(key: Key, users: list[int], ranks: list[int]) -> list[int]:
    """Rows of the ranks of a group: those it names, as long as only these use it; else those who use it."""
    if key == ALL:
        return list(range(len(ranks)))
    if key[1] and not key[2] and all(ranks[row] in key[1] for row in users):
        return [row for row, rank in enumerate(ranks) if rank in key[1]]
    return users


def _places(
    collectives: RankCollectives, known: Sequence[RankGroup], begin: np.ndarray, end: np.ndarray
) -> dict[Place, np.ndarray]:
    """Starts, ends and numbers by what they can be the same as."""
    start, finish, launched, numbers = collectives.start, collectives.finish, collectives.made, collectives.numbers
    order = np.argsort(begin, kind="stable")
    at = np.searchsorted(begin[order], launched, "right") - 1
    inside = (at >= 0) & (launched < end[order][np.maximum(at, 0)]) if len(begin) else np.zeros(len(launched), bool)
    place = np.where(inside, order[np.maximum(at, 0)], -1) if len(begin) else np.full(len(launched), -1)
    keys = {group: _key(group, collectives.rank, known) for group in dict.fromkeys(collectives.groups)}
    places: dict[Place, list[int]] = {}
    for row, (name, group, step) in enumerate(zip(collectives.names, collectives.groups, place.tolist(), strict=True)):
        what = (symmetric(group.collective) if group is not None else "") or symmetric(name)
        if what:
            places.setdefault((step, keys[group], what), []).append(row)
    return {key: np.stack((start[rows], finish[rows], numbers[rows])) for key, rows in places.items()}
