"""Rows of numbers in temporary files, however many there are: read again by their place, or in sorted order.

Memory does not grow with the rows, and what is small never reaches the disk. To sort, a run of rows is sorted in memory
and written; reading merges all runs, a few rows of each at a time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from tempfile import SpooledTemporaryFile, gettempdir
from types import TracebackType
from typing import Any

import numpy as np

from sonda.record.errors import SondaError

# ---- Rows by place --------------------------------------------------------------------------------------------------

IN_MEMORY = 1 << 24
"""Bytes from which rows are on the disk."""
BLOCK_ROWS = 1 << 10
HELD_BLOCKS = 64
"""Blocks that were read and are kept, the newest."""


class RowFile:
    """A sequence of rows that can be appended to; a row that is asked for is a tuple of Python's numbers.

    It is closed at the end, and its file is gone then. Raises SondaError when the disk is full.
    """

    def __init__(self, shape: np.dtype, in_memory: int | None = None) -> None:
        """`in_memory` are the bytes that stay there, `IN_MEMORY` unless told."""
        self.shape = shape
        self._file = SpooledTemporaryFile(max_size=IN_MEMORY if in_memory is None else in_memory)  # noqa: SIM115 - closed by __exit__
        self._block_rows = BLOCK_ROWS
        self._blocks: dict[int, list[tuple[Any, ...]]] = {}
        self._rows = 0

    def __enter__(self) -> RowFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._blocks.clear()
        self._file.close()

    def __len__(self) -> int:
        return self._rows

    def append(self, rows: np.ndarray) -> None:
        """Write rows of this shape behind the others."""
        try:
            self._file.seek(0, 2)
            self._file.write(rows.astype(self.shape, copy=False).tobytes())
            self._file.flush()
        except OSError as error:
            raise SondaError(
                f"no room for temporary files in {gettempdir()}: {error.strerror or error}",
                "free some space there, or name another place with TMPDIR",
            ) from None
        # The last block may have been read before it was full.
        self._blocks.pop(self._rows // self._block_rows, None)
        self._rows += len(rows)

    def read(self, first: int, stop: int) -> np.ndarray:
        """The rows from one place up to another."""
        size = self.shape.itemsize
        self._file.seek(first * size)
        return np.frombuffer(self._file.read((min(stop, self._rows) - first) * size), dtype=self.shape)

    def __getitem__(self, row: int) -> tuple[Any, ...]:
        """Raises IndexError beyond the last."""
        if not 0 <= row < self._rows:
            raise IndexError(row)
        block, at = divmod(row, self._block_rows)
        rows = self._blocks.get(block)
        if rows is None:
            while len(self._blocks) >= HELD_BLOCKS:
                del self._blocks[next(iter(self._blocks))]
            rows = self.read(block * self._block_rows, (block + 1) * self._block_rows).tolist()
            self._blocks[block] = rows
        return rows[at]


# ----------------------------------------------------------------------------------------------------------------------

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
        closed = sorted((_Cursor(self._file, self._keys, *run) for run in self._runs), key=lambda cursor: cursor.first)[
            ::-1
        ]
        reading: list[_Cursor] = []
        while closed or reading:
            # What has not been read yet comes behind the limit.
            limits = [cursor.last for cursor in reading if cursor.left] + [one.first for one in closed[-1:]]
            limit = min(limits, default=None)
            pieces = [cursor.take(limit) for cursor in reading if limit is None or cursor.first <= limit]
            pieces = [piece for piece in pieces if len(piece)]
            if pieces:
                yield pieces[0] if len(pieces) == 1 else self._ordered(np.concatenate(pieces))
            if closed and closed[-1].first == limit:
                reading.append(closed.pop())
            for cursor in reading:
                cursor.fill(together)
            reading = [cursor for cursor in reading if len(cursor.rows)]


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
        rows, self.rows = self.rows[:count], self.rows[count:]
        if len(self.rows):
            self.first = self._key(0)
        return rows

    def _key(self, at: int) -> Key:
        return tuple(self.rows[name][at].item() for name in self._names)
