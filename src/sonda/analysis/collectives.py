"""Collectives of several ranks: found in an imported run, and matched with one another.

Only those in which nobody can leave before everybody has come are matched: all-reduce, all-gather, reduce-scatter,
all-to-all and barriers. They are the same one where they have the same name and the same place in the same step.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from sonda.analysis.kernels import ON_DEVICE
from sonda.record.profile_names import COMMUNICATING
from sonda.record.run import Run
from sonda.record.span import Spans
from sonda.record.span_file import read_blocks

ON_HOST = re.compile(r"(?:gloo|mpi|ucc):")
"""Beginnings of names by which PyTorch marks collectives that the host executes."""
SYMMETRIC = {
    "all-reduce": re.compile(r"all[-_]?reduce", re.IGNORECASE),
    "all-gather": re.compile(r"all[-_]?gather", re.IGNORECASE),
    "reduce-scatter": re.compile(r"reduce[-_]?scatter", re.IGNORECASE),
    "all-to-all": re.compile(r"all[-_]?to[-_]?all", re.IGNORECASE),
    "barrier": re.compile(r"barrier", re.IGNORECASE),
}
"""In names of collectives in which nobody can leave before everybody has come."""
COLUMNS = ("rank", "launch_latency:measured")


@dataclass
class RankCollectives:
    """The collectives of one rank in the order of their starts; ns on the run's clock."""

    rank: int
    on_device: bool = False
    """Whether the rank has any activity of a device."""
    begin: int = 0
    end: int = 0
    """Of all its events."""
    _blocks: list[tuple[list[str], np.ndarray, np.ndarray, np.ndarray]] = field(default_factory=list)
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
        device = np.isin(kind.codes, [at for at, word in enumerate(kind.words) if word in ON_DEVICE])
        self.on_device |= bool(device.any())
        rows = np.flatnonzero(kind.equal("collective"))
        if len(rows) and not self._by_device:
            self._by_device, self._blocks = True, []
        if not self._by_device:
            said = np.array([communicates(word) for word in name.words])
            rows = np.flatnonzero(said[name.codes] & kind.equal("op"))
        latency = spans.metric("launch_latency", "measured")[rows]
        made = start[rows] - np.where(np.isnan(latency), 0, latency).astype(np.int64)
        words = [name.words[code] for code in name.codes[rows].tolist()]
        self._blocks.append((words, start[rows], start[rows] + length[rows], made))

    @property
    def names(self) -> list[str]:
        return [name for block in self._blocks for name in block[0]]

    @property
    def start(self) -> np.ndarray:
        return self._column(1)

    @property
    def finish(self) -> np.ndarray:
        return self._column(2)

    @property
    def made(self) -> np.ndarray:
        """When each was launched, or began where that is not known: this tells which step it belongs to."""
        return self._column(3)

    def _column(self, at: int) -> np.ndarray:
        columns = [block[at] for block in self._blocks]
        return np.concatenate(columns) if columns else np.zeros(0, np.int64)


@dataclass(frozen=True)
class Matched:
    """Collectives that all ranks have; a row for each rank, a column for each collective, ns."""

    names: tuple[str, ...]
    steps: np.ndarray
    """By collective: the place of its step."""
    start: np.ndarray
    end: np.ndarray
    unmatched: int
    """Those in which nobody can leave before all have come, of all ranks together, that found no partner."""


def collectives_of(run: Run) -> dict[int, RankCollectives]:
    """By rank; memory grows with collectives only."""
    found: dict[int, RankCollectives] = {}
    for spans in read_blocks(run, COLUMNS):
        if len(spans):
            rank = int(spans.number("rank")[0])  # a block holds one rank
            found.setdefault(rank, RankCollectives(rank)).feed(spans)
    return dict(sorted(found.items()))


def communicates(name: str) -> bool:
    """Whether an operation of the host is a collective that the host executes."""
    return bool(ON_HOST.match(name) or COMMUNICATING.search(name))


def symmetric(name: str) -> str:
    """What a collective is in which nobody can leave before everybody has come; '' for others."""
    return next((word for word, pattern in SYMMETRIC.items() if pattern.search(name)), "")


def match(ranks: Sequence[RankCollectives], steps: Mapping[int, tuple[np.ndarray, np.ndarray]], count: int) -> Matched:
    """`steps` are beginnings and ends of the `count` steps that all ranks have, by rank, in the order of their places.

    Where ranks have different numbers of a collective in a step, none of them is matched: nobody knows which is which.
    """
    grouped = [_by_step(one, *steps[one.rank]) for one in ranks]
    names: list[str] = []
    places: list[int] = []
    rows: list[list[np.ndarray]] = []
    unmatched = 0
    for step in range(count):
        of_ranks = [one.get(step, {}) for one in grouped]
        for name in dict.fromkeys(name for one in of_ranks for name in one):
            mine = [one.get(name, np.zeros((2, 0), np.int64)) for one in of_ranks]
            lengths = {one.shape[1] for one in mine}
            if len(lengths) > 1:
                unmatched += sum(one.shape[1] for one in mine)
                continue
            length = lengths.pop()
            names += [name] * length
            places += [step] * length
            rows.append(mine)
    unmatched += sum(one.shape[1] for found in grouped for one in found.get(-1, {}).values())
    times = [
        np.concatenate([np.stack([one[at] for one in mine]) for mine in rows], axis=1)
        if rows
        else np.zeros((len(ranks), 0), np.int64)
        for at in (0, 1)
    ]
    order = np.argsort(times[0][0], kind="stable") if len(ranks) else np.zeros(0, np.int64)
    return Matched(
        tuple(names[at] for at in order.tolist()), np.array(places, np.int64)[order], times[0][:, order],
        times[1][:, order], unmatched,
    )  # fmt: skip


def _by_step(one: RankCollectives, begin: np.ndarray, end: np.ndarray) -> dict[int, dict[str, np.ndarray]]:
    """Starts and ends by the place of the step, or -1, and by what they are."""
    start, finish, made = one.start, one.finish, one.made
    what = [symmetric(name) for name in one.names]
    order = np.argsort(begin, kind="stable")
    at = np.searchsorted(begin[order], made, "right") - 1
    inside = (at >= 0) & (made < end[order][np.maximum(at, 0)]) if len(begin) else np.zeros(len(made), bool)
    place = np.where(inside, order[np.maximum(at, 0)], -1) if len(begin) else np.full(len(made), -1)
    found: dict[int, dict[str, list[int]]] = {}
    for row, (name, step) in enumerate(zip(what, place.tolist(), strict=True)):
        if name:
            found.setdefault(step, {}).setdefault(name, []).append(row)
    return {
        step: {name: np.stack((start[rows], finish[rows])) for name, rows in names.items()}
        for step, names in found.items()
    }
