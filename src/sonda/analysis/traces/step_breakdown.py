"""What the steps of a profile are spent on: every moment of a step counts for one thing, so the parts add up.

At any moment several threads and streams work. The moment counts for the first of `CLASSES` that is under way: a device
that computes hides everything else, and what the framework does is seen only where nothing it called is running. Where
nothing at all was recorded, the step is idle. Spans are taken in blocks in the order of their starts; what is open at
the end of a block is all that is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from sonda.record.conventions.profile_names import (
    COMMUNICATING,
    DRIVER,
    ENGINE,
    GET_NEXT,
    LAUNCHING,
    LOADING,
    PIPELINE_PATH,
    TRANSFERRING,
    communicates,
)
from sonda.record.spans import Spans

CLASSES = ("compute", "communication", "transfer", "compile", "operations", "input", "launch", "host")
COMPUTE, COMMUNICATION, TRANSFER, COMPILE, OPERATIONS, INPUT, LAUNCH, HOST = range(len(CLASSES))
IDLE = len(CLASSES)
PARTS = (*CLASSES, "idle")
ON_DEVICE = {"kernel": COMPUTE, "collective": COMMUNICATION, "copy": TRANSFER}
NOTHING = -1
"""The class of what is no part of a step's time: steps themselves, and what the input pipeline does ahead."""


def classes(spans: Spans) -> np.ndarray:
    """The class of every span, `NOTHING` where it has none. Operations of the model are known by their paths."""
    kind, name, path = spans.words("kind"), spans.words("name"), spans.words("path")
    named = np.array([_by_name(word) for word in name.words])[name.codes]
    placed = np.array([_by_path(word) for word in path.words])[path.codes]
    # An operation of the model is one whatever its name, but for one that communicates or waits for input.
    kinds = np.where((named == HOST) & (placed != HOST), placed, named)
    kinds = np.where((placed == NOTHING) & (named != INPUT), NOTHING, kinds)
    for word, of in (*ON_DEVICE.items(), ("compile", COMPILE)):
        kinds[kind.equal(word)] = of
    timed = (*ON_DEVICE, "compile", "op", "annotation")
    kinds[~np.isin(kind.codes, [at for at, word in enumerate(kind.words) if word in timed])] = NOTHING
    return kinds


@dataclass
class HostClasses:
    """Tells the classes of spans of one rank of PyTorch that has no device. Takes blocks in the order of time.

    There the host computes: an operation is `COMPUTE` and hides communication, as a kernel does. What lies inside a
    collective, or inside the wait for a batch, belongs to that. An operation that calls a collective may wait for it
    there: it is `OPERATIONS`, which hide nothing. An annotation and autograd's engine only stand around others: their
    own time is the host's.
    """

    _communicating: Enclosure = field(default_factory=lambda: Enclosure())
    _loading: Enclosure = field(default_factory=lambda: Enclosure())

    def of(self, spans: Spans) -> np.ndarray:
        """The class of every span of the next block, `NOTHING` where it has none."""
        kind, name = spans.words("kind"), spans.words("name")
        host = kind.equal("op") | kind.equal("annotation")

        def named(matches: Callable[[str], bool]) -> np.ndarray:
            of_word = np.array([matches(word) for word in name.words], dtype=bool)
            mask: np.ndarray = host & of_word[name.codes]
            return mask

        by_name = np.array([_by_name(word) for word in name.words])[name.codes]
        kinds = np.where(host, np.where(by_name == HOST, COMPUTE, by_name), NOTHING)
        kinds[kind.equal("annotation") | named(lambda word: word.startswith(ENGINE))] = HOST
        kinds[kind.equal("compile")] = COMPILE
        communicating = host & self._communicating.holds(spans, named(communicates))
        kinds[communicating] = COMMUNICATION
        calling = _ancestors(spans, communicating)
        kinds[calling[kinds[calling] == COMPUTE]] = OPERATIONS
        kinds[host & self._loading.holds(spans, named(lambda word: word.startswith(LOADING)))] = INPUT
        return kinds


def _ancestors(spans: Spans, mask: np.ndarray) -> np.ndarray:
    """Rows of the block that hold one of these."""
    parent = spans.number("parent") - int(spans.number("id")[0]) if len(spans) else np.zeros(0, np.int64)
    around = np.zeros(len(spans), bool)
    rows = np.unique(parent[mask])
    while len(rows := rows[(rows >= 0)]):
        rows = rows[~around[rows]]
        around[rows] = True
        rows = np.unique(parent[rows])
    return np.flatnonzero(around)


def as_operations(kinds: np.ndarray, spans: Spans) -> np.ndarray:
    """The same classes, where what the host computes is `OPERATIONS`."""
    return np.where((kinds == COMPUTE) & spans.words("clock").equal("host"), OPERATIONS, kinds)


@dataclass
class Enclosure:
    """Tells which spans of the host lie in certain others of their thread. Takes blocks in the order of time."""

    _until: dict[int, int] = field(default_factory=dict)
    """By thread: when the last of them that has begun ends."""

    def holds(self, spans: Spans, outer: np.ndarray) -> np.ndarray:
        """Which spans of the next block lie in one of the `outer` ones, or are one."""
        start, thread = spans.number("start"), spans.number("thread")
        end = start + spans.number("duration")
        on_host = spans.words("clock").equal("host")
        held = np.zeros(len(spans), bool)
        for number in {*np.unique(thread[outer]).tolist(), *self._until}:
            mine = np.flatnonzero((thread == number) & on_host)
            if not len(mine):
                continue
            ends = np.where(outer[mine], end[mine], np.iinfo(np.int64).min)
            ends[0] = max(int(ends[0]), self._until.get(number, int(ends[0])))
            until = np.maximum.accumulate(ends)
            held[mine] = end[mine] <= until
            self._until[number] = int(until[-1])
        return held


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
        durations: np.ndarray = self.ends - self.starts
        return durations


@dataclass
class Breakdown:
    """Collects the spans of one rank."""

    rank: int
    _names: list[str] = field(default_factory=list)
    _starts: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    _ends: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    _rows: np.ndarray = field(default_factory=lambda: np.zeros((0, len(PARTS)), np.int64))
    _window: np.ndarray = field(default_factory=lambda: np.zeros((0, 2), np.int64))
    _open: tuple[np.ndarray, np.ndarray, np.ndarray] = field(default_factory=lambda: (np.zeros(0, np.int64),) * 3)
    _active: np.ndarray = field(default_factory=lambda: np.zeros(len(CLASSES), np.int64))
    _now: int | None = None
    seen: np.ndarray = field(default_factory=lambda: np.zeros(len(CLASSES), bool))
    """Which classes any span had."""
    _holders: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By row: until when a span lasts, and its class, or that of what it lies in."""

    @classmethod
    def whole(cls, rank: int, name: str, begin: int, end: int) -> Breakdown:
        """Of a rank that marks no steps: all of it counts as one."""
        return cls(rank, [name], np.array([begin], np.int64), np.array([end], np.int64))

    def feed(self, spans: Spans, kinds: np.ndarray, innermost: bool = False) -> None:
        """A block and the classes of its spans. `innermost`: an operation counts only while nothing of another class is
        open inside it."""
        if not len(spans):
            return
        start = spans.number("start")
        end = start + spans.number("duration")
        self._more_steps(spans, start, end)
        self._rows = _grown(self._rows, len(self._starts), 0)
        self._window = _grown(self._window, len(self._starts), -1)
        mine = kinds != NOTHING
        self.seen[np.unique(kinds[mine])] = True
        self._launched(spans, start, end, kinds)
        until, weights = int(start[-1]), np.ones(int(mine.sum()), np.int64)
        if not innermost:
            self._sweep(start[mine], end[mine], kinds[mine], weights, until)
            return
        holder = np.where(mine, self._holder(spans, kinds, end, until), NOTHING)
        mine &= holder != kinds
        held = (holder != kinds) & np.isin(holder, (COMPUTE, OPERATIONS))
        self._sweep(
            np.concatenate((start[mine], start[held])), np.concatenate((end[mine], end[held])),
            np.concatenate((kinds[mine], holder[held])), np.repeat([1, -1], [int(mine.sum()), int(held.sum())]), until,
        )  # fmt: skip

    def _holder(self, spans: Spans, kinds: np.ndarray, end: np.ndarray, until: int) -> np.ndarray:
        """The class of the nearest span around each that has one; `NOTHING` where none has."""
        first, parent = int(spans.number("id")[0]), spans.number("parent")
        holder = np.full(len(spans), NOTHING)
        asking, at = np.arange(len(spans)), parent
        while len(asking):
            before = at < first
            for row in np.unique(at[before]).tolist():
                holder[asking[before & (at == row)]] = self._holders.get(row, (0, NOTHING))[1]
            asking, at = asking[~before], at[~before]
            here = kinds[at - first]
            holder[asking] = here
            asking, at = asking[here == NOTHING], parent[at[here == NOTHING] - first]
        self._holders = {row: entry for row, entry in self._holders.items() if entry[0] > until}
        for row in np.flatnonzero(end > until).tolist():
            self._holders[first + row] = int(end[row]), int(kinds[row] if kinds[row] != NOTHING else holder[row])
        return holder

    def _more_steps(self, spans: Spans, start: np.ndarray, end: np.ndarray) -> None:
        name = spans.words("name")
        reached = int(self._ends[-1]) if len(self._ends) else None
        steps = []
        for row in np.flatnonzero(spans.words("kind").equal("step")).tolist():
            if reached is None or start[row] >= reached:
                steps.append(row)
                reached = int(end[row])
        self._names += [name.words[code] for code in name.codes[steps].tolist()]
        self._starts = np.concatenate((self._starts, start[steps]))
        self._ends = np.concatenate((self._ends, end[steps]))

    def _launched(self, spans: Spans, start: np.ndarray, end: np.ndarray, kinds: np.ndarray) -> None:
        latency = spans.metric("launch_latency", "measured")
        known = np.flatnonzero(~np.isnan(latency) & (kinds != NOTHING) & spans.words("clock").equal("device"))
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

    def _sweep(
        self, start: np.ndarray, end: np.ndarray, kinds: np.ndarray, weights: np.ndarray, until: int
    ) -> None:  # fmt: skip
        """Count the time up to `until`; nothing that comes later begins before it."""
        ends, of, weight = (
            np.concatenate(pair) for pair in zip(self._open, (end, kinds, weights), strict=True)
        )  # fmt: skip
        closing = ends <= until
        self._open = ends[~closing], of[~closing], weight[~closing]
        since = 0 if self._now is None else int(np.searchsorted(self._ends, self._now, "right"))
        borders = np.concatenate((self._starts[since:], self._ends[since:]))
        borders = borders[borders <= until]
        if self._now is not None:
            borders = borders[borders > self._now]
        now = [self._now] if self._now is not None else []
        times = np.concatenate((np.array(now, np.int64), start, ends[closing], borders, [until]))
        change = np.zeros((len(times), len(CLASSES)), np.int32)
        begin = len(now)
        change[np.arange(begin, begin + len(start)), kinds] = weights
        begin += len(start)
        change[np.arange(begin, begin + int(closing.sum())), of[closing]] = -weight[closing]
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
        self._sweep(empty, empty, empty, empty, last)
        window = np.where(self._window[:, 0] >= 0, self._window[:, 1] - self._window[:, 0], 0)
        return Steps(self.rank, tuple(self._names), self._starts, self._ends, self._rows, window)


def _grown(rows: np.ndarray, length: int, filled: int) -> np.ndarray:
    more = np.full((length - len(rows), rows.shape[1]), filled, np.int64)
    return np.concatenate((rows, more)) if len(more) else rows
