"""Zero patterns of matrices: bitmaps, compressed rows, the packed text of reference files."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Any

import numpy as np

from sonda.record.errors import SondaError


@dataclass(frozen=True)
class CompressedRows:
    """Where a matrix is not zero: the sorted columns of each row, one row after the other."""

    columns: int
    """Width of the matrix; nothing is allocated for it."""
    pointer: np.ndarray
    """rows + 1 int64: row r's entries are indices[pointer[r]:pointer[r + 1]]."""
    indices: np.ndarray

    @property
    def rows(self) -> int:
        return self.pointer.size - 1

    @property
    def nonzeros(self) -> int:
        return int(self.pointer[-1])

    def row_sizes(self) -> np.ndarray:
        return np.diff(self.pointer)

    def transposed(self) -> CompressedRows:
        """The same pattern by columns; entries of a column in the order of its rows."""
        order = np.argsort(self.indices, kind="stable")
        row_of = np.repeat(np.arange(self.rows), self.row_sizes())
        return CompressedRows(self.rows, pointer_of(np.bincount(self.indices, minlength=self.columns)), row_of[order])


def compressed_rows(pattern: np.ndarray) -> CompressedRows:
    """The nonzero elements of a two-dimensional array; NaN counts as not zero."""
    rows, columns = np.nonzero(pattern)
    sizes = np.bincount(rows, minlength=pattern.shape[0])
    return CompressedRows(pattern.shape[1], pointer_of(sizes), np.ascontiguousarray(columns, np.int64))


def rows_from_lists(lists: list[list[int]], columns: int) -> CompressedRows:
    """Rows given by the columns of their entries, in any order; a column named twice is one entry."""
    entries = [np.unique(np.asarray(entries_of_row, np.int64)) for entries_of_row in lists]
    flat = np.concatenate(entries) if entries else np.empty(0, np.int64)
    if flat.size and not 0 <= flat.min() <= flat.max() < columns:
        raise SondaError(
            f"a column is outside 0 to {columns - 1}", "give the width of the matrix that the columns are of"
        )
    return CompressedRows(columns, pointer_of(np.array([row_entries.size for row_entries in entries], np.int64)), flat)


def read_pattern(document: dict[str, Any]) -> np.ndarray:
    """The 0/1 matrix (uint8) of `{"shape": [rows, columns], "packbits_b64": text}`, row by row, first bit highest."""
    try:
        rows, columns = document["shape"]
        packed = np.frombuffer(base64.b64decode(document["packbits_b64"], validate=True), np.uint8)
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise SondaError(f"a zero pattern cannot be read ({error})", "give shape and packbits_b64") from None
    if packed.size * 8 < rows * columns:
        raise SondaError(
            f"a zero pattern holds {packed.size * 8} bits, fewer than its {rows} x {columns}", "check shape"
        )
    return np.unpackbits(packed)[: rows * columns].reshape(rows, columns)


def pointer_of(sizes: np.ndarray) -> np.ndarray:
    """Where each of rows of these sizes begins, and where the last ends."""
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)))
