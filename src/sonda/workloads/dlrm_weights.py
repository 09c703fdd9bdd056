"""DLRM's own initial weights, draw by draw: tables, then the bottom perceptron, then the top one.

Order and distributions are those of `dlrm_s_pytorch.py` (facebookresearch/dlrm, commit 090956e), which seeds NumPy's
legacy generator once before it builds the model. Everything is drawn in double precision and kept in single.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

DRAWN_AT_ONCE = 2**22
"""Numbers drawn in one go for a table, so that its double-precision copy never exists as a whole."""


class DlrmWeights:
    """The weights of one model; call the methods in the order of the model: tables, bottom, top."""

    def __init__(self, seed: int) -> None:
        self._draw = np.random.RandomState(seed)

    def table(self, rows: int, columns: int) -> np.ndarray:
        """An embedding table, uniform within ±sqrt(1/rows), float32."""
        table = np.empty((rows, columns), dtype=np.float32)
        for first, part in self._parts(rows, columns):
            table[first : first + len(part)] = part
        return table

    def table_rows(self, rows: int, columns: int, wanted: np.ndarray) -> np.ndarray:
        """Only these rows of the table, ascending, float32. All of it is drawn, a part at a time; nothing else is kept,
        so that tables of any size fit in memory."""
        found = np.empty((len(wanted), columns), dtype=np.float32)
        for first, part in self._parts(rows, columns):
            begin, end = np.searchsorted(wanted, (first, first + len(part)))
            found[begin:end] = part[wanted[begin:end] - first]
        return found

    def _parts(self, rows: int, columns: int) -> Iterator[tuple[int, np.ndarray]]:
        """The rows of a table a part at a time, in double precision, each with the number of its first."""
        limit = np.sqrt(1 / rows)
        step = max(1, DRAWN_AT_ONCE // columns)
        for first in range(0, rows, step):
            yield first, self._draw.uniform(-limit, limit, (min(step, rows - first), columns))

    def perceptron(self, widths: Sequence[int]) -> list[tuple[np.ndarray, np.ndarray]]:
        """Weight (out x in) and bias of each layer between these widths, float32."""
        layers = []
        for inputs, outputs in itertools.pairwise(widths):
            weight = self._draw.normal(0.0, np.sqrt(2 / (inputs + outputs)), (outputs, inputs)).astype(np.float32)
            bias = self._draw.normal(0.0, np.sqrt(1 / outputs), outputs).astype(np.float32)
            layers.append((weight, bias))
        return layers
