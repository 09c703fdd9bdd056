"""Rows of numbers in a temporary file: appended while something is computed, read again by their place.

Memory does not grow with the rows. What is small never reaches the disk.
"""

from __future__ import annotations

from tempfile import SpooledTemporaryFile, gettempdir
from types import TracebackType
from typing import Any

import numpy as np

from sonda.record.errors import SondaError

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
        held = self._blocks.get(block)
        if held is None:
            while len(self._blocks) >= HELD_BLOCKS:
                del self._blocks[next(iter(self._blocks))]
            held = self.read(block * self._block_rows, (block + 1) * self._block_rows).tolist()
            self._blocks[block] = held
        return held[at]
