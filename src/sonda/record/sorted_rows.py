"""Rows of numbers that are read back in an order, however many there are.

A run of rows is sorted in memory and written; reading merges all runs, a few rows of each at a time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from types import TracebackType

import numpy as np

from sonda.record.row_file import RowFile

RUN_ROWS = 1 << 17
READ_ROWS = 1 << 17
"""Rows of all runs together that are held while they are merged."""
FEWEST = 64
"""Rows that are read of one run at a time, at least."""

Key = tuple[int, ...]


class SortedRows:
    """Rows are added in any order, then read by `blocks`, as often as wanted. Rows of equal keys keep no order."""

    def __init__(
        self, shape: np.dtype, keys: Sequence[str], run_rows: int | None = None, in_memory: int | None = None
    ) -> None:
        """`keys` are the names of the columns that order them, the first before all others."""
        self.shape = shape
        self._keys = tuple(keys)
        self._run_rows = RUN_ROWS if run_rows is None else run_rows
        self._file = RowFile(shape, in_memory)
        self._runs: list[tuple[int, int]] = []
        self._waiting: list[np.ndarray] = []
        self._waiting_rows = 0

    def __enter__(self) -> SortedRows:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def __len__(self) -> int:
        return len(self._file) + self._waiting_rows

    def add(self, rows: np.ndarray) -> None:
        """Raises SondaError when the disk is full."""
        if not len(rows):
            return
        self._waiting.append(rows)
        self._waiting_rows += len(rows)
        if self._waiting_rows >= self._run_rows:
            self._write()

    def blocks(self) -> Iterator[np.ndarray]:
        """All rows in their order. Nothing may be added meanwhile."""
        if not self._runs:
            if self._waiting:
                yield self._ordered(np.concatenate(self._waiting))
            return
        self._write()
        yield from self._merged()

    def _write(self) -> None:
        if not self._waiting:
            return
        rows = self._ordered(np.concatenate(self._waiting))
        self._waiting, self._waiting_rows = [], 0
        first = len(self._file)
        self._file.append(rows)
        self._runs.append((first, len(self._file)))

    def _ordered(self, rows: np.ndarray) -> np.ndarray:
        return rows[np.lexsort([rows[name] for name in reversed(self._keys)])]

    def _merged(self) -> Iterator[np.ndarray]:
        together = max(FEWEST, READ_ROWS // len(self._runs))
        # The one that begins first is the last in the list.
        closed = sorted((_Cursor(self._file, self._keys, *run) for run in self._runs), key=lambda one: one.first)[::-1]
        reading: list[_Cursor] = []
        while closed or reading:
            # What has not been read yet comes behind the limit.
            limits = [one.last for one in reading if one.left] + [one.first for one in closed[-1:]]
            limit = min(limits, default=None)
            pieces = [one.take(limit) for one in reading if limit is None or one.first <= limit]
            pieces = [piece for piece in pieces if len(piece)]
            if pieces:
                yield pieces[0] if len(pieces) == 1 else self._ordered(np.concatenate(pieces))
            if closed and closed[-1].first == limit:
                reading.append(closed.pop())
            for one in reading:
                one.fill(together)
            reading = [one for one in reading if len(one.rows)]


class _Cursor:
    """How far a run was read."""

    def __init__(self, file: RowFile, keys: tuple[str, ...], first: int, stop: int) -> None:
        self._file = file
        self._names = keys
        self._at, self._stop = first, stop
        self.rows = file.read(first, first + 1)
        """Read and not taken."""
        self.first = self.last = self._key(0)
        """Of the rows that are held."""
        self._at += 1

    @property
    def left(self) -> int:
        """Rows that were not read."""
        return self._stop - self._at

    def fill(self, rows: int) -> None:
        """Read some where none are held."""
        if len(self.rows) or not self.left:
            return
        stop = min(self._stop, self._at + rows)
        self.rows = self._file.read(self._at, stop)
        self._at = stop
        self.first, self.last = self._key(0), self._key(len(self.rows) - 1)

    def take(self, limit: Key | None) -> np.ndarray:
        """The rows that are held up to a limit, with it."""
        count = len(self.rows) if limit is None else bisect_right(range(len(self.rows)), limit, key=self._key)
        taken, self.rows = self.rows[:count], self.rows[count:]
        if len(self.rows):
            self.first = self._key(0)
        return taken

    def _key(self, at: int) -> Key:
        return tuple(self.rows[name][at].item() for name in self._names)
