"""The C library's `rand()` as a program gets it that never seeds it, and the sparse operands that STONNE draws from it.

glibc's default generator (TYPE_3, additive feedback over 31 words) with seed 1: r[i] = r[i-3] + r[i-31] modulo 2^32,
the lowest bit dropped; the first 310 are thrown away. r[0] is the seed, r[1..30] follow by r[i] = 16807 r[i-1] mod
(2^31 - 1).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sonda.record.jit import compiled

WORDS = 31
THROWN_AWAY = 310


class LibraryRandom:
    """Draws in the order of the program's calls of `rand()`."""

    def __init__(self) -> None:
        words = [1]
        for _ in range(WORDS - 1):
            words.append(16807 * words[-1] % 0x7FFFFFFF)
        self._words = np.array(words, np.uint32)
        # r[31..33] repeat r[0..2]; the feedback begins at r[34], which takes the place of r[3].
        self._place = np.full(1, 3, np.int64)
        self.draw(THROWN_AWAY)

    def draw(self, count: int) -> NDArray[np.int64]:
        """The next `count` values, 0 to 2^31 - 1."""
        values = np.empty(count, np.int64)
        compiled(_draw)(self._words, self._place, values)
        return values

    def sparse_matrix(self, rows: int, columns: int, sparsity: int) -> NDArray[np.bool_]:
        """Where a matrix that STONNE draws row by row is not zero.

        An element is zero if a draw modulo 100 is at most `sparsity`; any other takes a second draw for its value.
        """
        nonzero = np.empty(rows * columns, np.bool_)
        compiled(_draw_sparse)(self._words, self._place, sparsity, nonzero)
        return nonzero.reshape(rows, columns)


def _draw(words: NDArray[np.uint32], place: NDArray[np.int64], values: NDArray[np.int64]) -> None:
    at = place[0]
    for i in range(values.size):
        words[at] = words[at] + words[at - 3 if at >= 3 else at + 28]
        values[i] = words[at] >> 1
        at = 0 if at == 30 else at + 1
    place[0] = at


def _draw_sparse(
    words: NDArray[np.uint32], place: NDArray[np.int64], sparsity: int, nonzero: NDArray[np.bool_]
) -> None:
    at = place[0]
    for i in range(nonzero.size):
        words[at] = words[at] + words[at - 3 if at >= 3 else at + 28]
        nonzero[i] = (words[at] >> 1) % 100 > sparsity
        at = 0 if at == 30 else at + 1
        if nonzero[i]:
            words[at] = words[at] + words[at - 3 if at >= 3 else at + 28]
            at = 0 if at == 30 else at + 1
    place[0] = at
