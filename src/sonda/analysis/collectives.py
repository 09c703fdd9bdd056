"""Collectives of several ranks: found in an imported run.

Only those in which nobody can leave before everybody has come say who waits for whom: all-reduce, all-gather,
reduce-scatter, all-to-all and barriers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np

from sonda.analysis.kernels import LATENCY, on_device
from sonda.record.profile_names import COMMUNICATING
from sonda.record.rank_group import RankGroup, group_of
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
            said = np.array([communicates(word) for word in name.words])
            rows = np.flatnonzero(said[name.codes] & kind.equal("op"))
        latency = spans.metric("launch_latency", "measured")[rows]
        made = start[rows] - np.where(np.isnan(latency), 0, latency).astype(np.int64)
        path = spans.words("path")
        words, labels = ([one.words[code] for code in one.codes[rows].tolist()] for one in (name, path))
        said = spans.metric("sequence", "counted")[rows]
        number = np.where(np.isnan(said), -1, said).astype(np.int64)
        self._blocks.append((words, labels, start[rows], start[rows] + length[rows], made, number))

    @property
    def names(self) -> list[str]:
        return [name for block in self._blocks for name in block[0]]

    @property
    def groups(self) -> list[RankGroup | None]:
        """Of which group of ranks each is, where the trace says so."""
        labels = [label for block in self._blocks for label in block[1]]
        found = {label: group_of(label) for label in set(labels)}
        return [found[label] for label in labels]

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
