"""What the steps of a profile are spent on: every moment of a step counts for one thing, so the parts add up.

At any moment several threads and streams work. The moment counts for the first of `CLASSES` that is under way: a device
that computes hides everything else, and what the framework does is seen only where nothing it called is running. Where
nothing at all was recorded, the step is idle. Spans are taken in blocks in the order of their starts; what is open at
the end of a block is all that is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from sonda.record.profile_names import COMMUNICATING, DRIVER, ENGINE, GET_NEXT, LAUNCHING, PIPELINE_PATH, TRANSFERRING
from sonda.record.span import Spans

CLASSES = ("compute", "communication", "transfer", "compile", "operations", "input", "launch", "host")
COMPUTE, COMMUNICATION, TRANSFER, COMPILE, OPERATIONS, INPUT, LAUNCH, HOST = range(len(CLASSES))
IDLE = len(CLASSES)
PARTS = (*CLASSES, "idle")
ON_DEVICE = {"kernel": COMPUTE, "collective": COMMUNICATION, "copy": TRANSFER}
NOTHING = -1
"""The class of what is no part of a step's time: steps themselves, and what the input pipeline does ahead."""


def classes(spans: Spans, by_path: bool = True) -> np.ndarray:
    """The class of every span, `NOTHING` where it has none.

    `by_path`: operations of the model are known by their paths. Traces of PyTorch have none: there whatever the host
    does is an operation, but for what the engine of autograd does around them.
    """
    kind, name, path = spans.words("kind"), spans.words("name"), spans.words("path")
    named = np.array([_by_name(word) for word in name.words])[name.codes]
    if by_path:
        placed = np.array([_by_path(word) for word in path.words])[path.codes]
    else:
        engine = np.array([word.startswith(ENGINE) for word in name.words])[name.codes]
        placed = np.where(engine, HOST, OPERATIONS)
    # An operation of the model is one whatever its name, but for one that communicates or waits for input.
    found = np.where((named == HOST) & (placed != HOST), placed, named)
    found = np.where((placed == NOTHING) & (named != INPUT), NOTHING, found)
    for word, of in (*ON_DEVICE.items(), ("compile", COMPILE)):
        found[kind.equal(word)] = of
    found[~np.isin(kind.codes, [at for at, word in enumerate(kind.words) if word in (*ON_DEVICE, "compile", "op")])] = (
        NOTHING
    )
    return found


def _by_name(name: str) -> int:
    if name.startswith(GET_NEXT):
        return INPUT
    if name.startswith(TRANSFERRING):
        return TRANSFER
    if name.startswith(LAUNCHING) or DRIVER.match(name):
        return LAUNCH
    return COMMUNICATION if COMMUNICATING.search(name) else HOST


def _by_path(path: str) -> int:
    if not path:
        return HOST
    return NOTHING if path == PIPELINE_PATH or path.startswith(f"{PIPELINE_PATH}/") else OPERATIONS


@dataclass(frozen=True)
class Steps:
    """Steps of one rank, in order; times in ns. Steps inside others, or begun in one, are not among them."""

    rank: int
    names: tuple[str, ...]
    starts: np.ndarray
    ends: np.ndarray
    parts: np.ndarray
    """A row for each step, a column for each of `PARTS`."""
    device: np.ndarray
    """From the beginning of the first activity that was launched in it to the end of the last; 0 where none was."""

    @property
    def durations(self) -> np.ndarray:
        return self.ends - self.starts


@dataclass
class Breakdown:
    """Collects the spans of one rank."""

    rank: int
    _names: list[str] = field(default_factory=list)
    _starts: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    _ends: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    _rows: np.ndarray = field(default_factory=lambda: np.zeros((0, len(PARTS)), np.int64))
    _window: np.ndarray = field(default_factory=lambda: np.zeros((0, 2), np.int64))
    _open: tuple[np.ndarray, np.ndarray] = field(default_factory=lambda: (np.zeros(0, np.int64), np.zeros(0, np.int64)))
    _active: np.ndarray = field(default_factory=lambda: np.zeros(len(CLASSES), np.int64))
    _now: int | None = None
    seen: np.ndarray = field(default_factory=lambda: np.zeros(len(CLASSES), bool))
    """Which classes any span had."""

    @classmethod
    def whole(cls, rank: int, name: str, begin: int, end: int) -> Breakdown:
        """Of a rank that marks no steps: all of it counts as one."""
        return cls(rank, [name], np.array([begin], np.int64), np.array([end], np.int64))

    def feed(self, spans: Spans, found: np.ndarray) -> None:
        """A block and the classes of its spans."""
        if not len(spans):
            return
        start = spans.number("start")
        end = start + spans.number("duration")
        self._more_steps(spans, start, end)
        self._rows = _grown(self._rows, len(self._starts), 0)
        self._window = _grown(self._window, len(self._starts), -1)
        mine = found != NOTHING
        self.seen[np.unique(found[mine])] = True
        self._launched(spans, start, end, found)
        self._sweep(start[mine], end[mine], found[mine], int(start[-1]))

    def _more_steps(self, spans: Spans, start: np.ndarray, end: np.ndarray) -> None:
        name = spans.words("name")
        reached = int(self._ends[-1]) if len(self._ends) else None
        kept = []
        for row in np.flatnonzero(spans.words("kind").equal("step")).tolist():
            if reached is None or start[row] >= reached:
                kept.append(row)
                reached = int(end[row])
        self._names += [name.words[code] for code in name.codes[kept].tolist()]
        self._starts = np.concatenate((self._starts, start[kept]))
        self._ends = np.concatenate((self._ends, end[kept]))

    def _launched(self, spans: Spans, start: np.ndarray, end: np.ndarray, found: np.ndarray) -> None:
        latency = spans.metric("launch_latency", "measured")
        known = np.flatnonzero(~np.isnan(latency) & (found != NOTHING) & spans.words("clock").equal("device"))
        if not len(known) or not len(self._starts):
            return
        step = self._step(start[known] - latency[known].astype(np.int64))
        known, step = known[step >= 0], step[step >= 0]
        first, last = self._window[:, 0], self._window[:, 1]
        fresh = first < 0
        first[fresh] = np.iinfo(np.int64).max
        np.minimum.at(first, step, start[known])
        np.maximum.at(last, step, end[known])
        first[first == np.iinfo(np.int64).max] = -1

    def in_step(self, moments: np.ndarray) -> np.ndarray:
        """Which of these moments, none later than what was fed, lie in a step."""
        return self._step(moments) >= 0 if len(self._starts) else np.zeros(len(moments), bool)

    def _step(self, moments: np.ndarray) -> np.ndarray:
        """The step that each of these moments lies in, or -1."""
        at = np.searchsorted(self._starts, moments, "right") - 1
        inside = (at >= 0) & (moments < self._ends[np.maximum(at, 0)])
        return np.where(inside, at, -1)

    def _sweep(self, start: np.ndarray, end: np.ndarray, found: np.ndarray, until: int) -> None:
        """Count the time up to `until`; nothing that comes later begins before it."""
        open_ends, open_classes = self._open
        ends, of = np.concatenate((open_ends, end)), np.concatenate((open_classes, found))
        closing = ends <= until
        self._open = ends[~closing], of[~closing]
        since = 0 if self._now is None else int(np.searchsorted(self._ends, self._now, "right"))
        borders = np.concatenate((self._starts[since:], self._ends[since:]))
        borders = borders[borders <= until]
        if self._now is not None:
            borders = borders[borders > self._now]
        now = [self._now] if self._now is not None else []
        times = np.concatenate((np.array(now, np.int64), start, ends[closing], borders, [until]))
        change = np.zeros((len(times), len(CLASSES)), np.int32)
        begin = len(now)
        change[np.arange(begin, begin + len(start)), found] = 1
        begin += len(start)
        change[np.arange(begin, begin + int(closing.sum())), of[closing]] = -1
        order = np.argsort(times, kind="stable")
        times = times[order]
        active = self._active + np.cumsum(change[order], axis=0)
        self._active, self._now = active[-1], until
        length = np.diff(times)
        long = length > 0
        active, length, moments = active[:-1][long] > 0, length[long], times[:-1][long]
        part = np.where(active.any(axis=1), np.argmax(active, axis=1), IDLE)
        if len(self._starts):
            step = self._step(moments)
            np.add.at(self._rows, (step[step >= 0], part[step >= 0]), length[step >= 0])

    def result(self) -> Steps:
        """All steps; nothing may be fed afterwards."""
        last = max([*self._ends[-1:].tolist(), *self._open[0].tolist(), self._now or 0])
        empty = np.zeros(0, np.int64)
        self._sweep(empty, empty, empty, last)
        window = np.where(self._window[:, 0] >= 0, self._window[:, 1] - self._window[:, 0], 0)
        return Steps(self.rank, tuple(self._names), self._starts, self._ends, self._rows, window)


def _grown(rows: np.ndarray, length: int, filled: int) -> np.ndarray:
    more = np.full((length - len(rows), rows.shape[1]), filled, np.int64)
    return np.concatenate((rows, more)) if len(more) else rows
