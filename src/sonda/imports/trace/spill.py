"""Spilled events: sorted runs of raw events in one file on disk, read back in the order of time.

Memory stays bounded: a run is sorted before it is written, a small index of its starts is kept, and reading takes one
window of time after another from all runs that reach into it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import msgspec
import numpy as np

from sonda.imports.trace.raw_events import ABSENT, RAW, STEP, pack_group, unpack_groups

RUN_ROWS = 1 << 16
BLOCK_ROWS = 1 << 16
"""Rows that are read back together, about."""
STRIDE = 256
"""Every so many rows of a run, its start is kept in the index."""


class SortedRun(msgspec.Struct):
    """Where a run is in its file, and its index."""

    first: int
    """Rows before it."""
    rows: int
    starts: list[int]


class Spill:
    """A file of sorted runs. Rows are added, then read; `names` and `threads` translate their numbers when read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.runs: list[SortedRun] = []
        self.names: np.ndarray | None = None
        self.threads: np.ndarray | None = None
        self.shift = 0
        """ns added to every start when read."""
        self._waiting: list[np.ndarray] = []
        self._waiting_rows = 0
        self._rows = 0
        self._file: BinaryIO | None = None

    def __enter__(self) -> Spill:
        self._file = open(self.path, "wb")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._file is not None
        try:
            if kind is None:
                self._write()
        finally:
            self._file.close()

    @property
    def first_start(self) -> int | None:
        """The earliest start, None where there is no row."""
        return min((run.starts[0] for run in self.runs), default=None)

    def add(self, rows: np.ndarray) -> None:
        """Rows of `RAW` in any order. Raises OSError when the disk is full."""
        self._waiting.append(rows)
        self._waiting_rows += len(rows)
        if self._waiting_rows >= RUN_ROWS:
            self._write()

    def _write(self) -> None:
        assert self._file is not None
        if not self._waiting_rows:
            return
        rows = sort_by_time(np.concatenate(self._waiting))
        self._waiting, self._waiting_rows = [], 0
        self._file.write(rows.tobytes())
        self.runs.append(SortedRun(self._rows, len(rows), rows["start"][::STRIDE].tolist()))
        self._rows += len(rows)


def sort_by_time(rows: np.ndarray) -> np.ndarray:
    """Rows by start, of equal starts the longest first, of equals steps: an event comes after those that hold it."""
    # Rows are nearly in order, which a stable sort makes use of; equal starts are few.
    order = np.argsort(rows["start"], kind="stable")
    start = rows["start"][order]
    equal = np.flatnonzero(start[1:] == start[:-1])
    if len(equal):
        places = np.union1d(equal, equal + 1)
        tied = order[places]
        by = rows["kind"][tied] != STEP, -rows["duration"][tied], rows["start"][tied]
        order[places] = tied[np.lexsort(by)]
    return rows[order]


def merge_by_time(spills: Sequence[Spill], block_rows: int = BLOCK_ROWS) -> Iterator[np.ndarray]:
    """All rows in the order of `sort_by_time`, about `block_rows` at a time."""
    cursors = [_Cursor(spill, run) for spill in spills for run in spill.runs]
    if not cursors:
        return
    every = np.sort(np.concatenate([cursor.index for cursor in cursors]))
    limits = [*np.unique(every[:: max(1, block_rows // STRIDE)])[1:].tolist(), None]
    files = {spill.path: os.open(spill.path, os.O_RDONLY) for spill in spills}
    try:
        for limit in limits:
            pieces = [
                cursor.take(files[cursor.spill.path], limit)
                for cursor in cursors
                if not cursor.done and (limit is None or cursor.next < limit)
            ]
            if pieces:
                yield sort_by_time(np.concatenate(pieces))
    finally:
        for descriptor in files.values():
            os.close(descriptor)


class _Cursor:
    """How far a run was read."""

    def __init__(self, spill: Spill, run: SortedRun) -> None:
        self.spill = spill
        self._run = run
        self.index = np.array(run.starts, dtype=np.int64) + spill.shift
        self._taken = 0
        self.next = int(self.index[0])
        """A start that the next row does not come before."""

    @property
    def done(self) -> bool:
        return self._taken >= self._run.rows

    def take(self, descriptor: int, limit: int | None) -> np.ndarray:
        """The rows that start before `limit`, or all that are left."""
        stop = self._run.rows
        if limit is not None:
            stop = min(stop, int(np.searchsorted(self.index, limit, "left")) * STRIDE)
        size = RAW.itemsize
        text = os.pread(descriptor, (stop - self._taken) * size, (self._run.first + self._taken) * size)
        rows = np.frombuffer(text, dtype=RAW).copy()
        rows["start"] += self.spill.shift
        if limit is not None:
            beyond = int(np.searchsorted(rows["start"], limit, "left"))
            if beyond < len(rows):
                self.next = int(rows["start"][beyond])
                rows = rows[:beyond]
            else:
                self.next = limit
        self._taken += len(rows)
        if self.spill.names is not None:
            rows["name"] = self.spill.names[rows["name"]]
            grouped_rows = np.flatnonzero(rows["bytes"] < ABSENT)
            if len(grouped_rows):
                labels, numbers = (column.tolist() for column in unpack_groups(rows["bytes"][grouped_rows]))
                places = self.spill.names[labels].tolist()
                rows["bytes"][grouped_rows] = [
                    pack_group(place, number) for place, number in zip(places, numbers, strict=True)
                ]
        if self.spill.threads is not None:
            rows["thread"] = self.spill.threads[rows["thread"]]
        return rows
