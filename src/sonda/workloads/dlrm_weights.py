"""DLRM's own initial weights, draw by draw: tables, then the bottom perceptron, then the top one.

Order and distributions are those of `dlrm_s_pytorch.py` (facebookresearch/dlrm, commit 090956e), which seeds NumPy's
legacy generator once before it builds the model. Everything is drawn in double precision and kept in single.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

DRAWN_AT_ONCE = 2**22
"""Numbers drawn in one go for a table, so that its double-precision copy never exists as a whole."""


class DlrmWeights:
    """The weights of one model; call the methods in the order of the model: tables, bottom, top."""

    def __init__(self, seed: int) -> None:
        self._draw = np.random.RandomState(seed)

    def table(self, rows: int, columns: int) -> np.ndarray:
        """An embedding table, uniform within ±sqrt(1/rows), float32."""
        limit = np.sqrt(1 / rows)
        table = np.empty((rows, columns), dtype=np.float32)
        step = max(1, DRAWN_AT_ONCE // columns)
        for first in range(0, rows, step):
            part = table[first : first + step]
            part[:] = self._draw.uniform(-limit, limit, part.shape)
        return table

    def perceptron(self, widths: Sequence[int]) -> list[tuple[np.ndarray, np.ndarray]]:
        """Weight (out x in) and bias of each layer between these widths, float32."""
        layers = []
        for inputs, outputs in itertools.pairwise(widths):
            weight = self._draw.normal(0.0, np.sqrt(2 / (inputs + outputs)), (outputs, inputs)).astype(np.float32)
            bias = self._draw.normal(0.0, np.sqrt(1 / outputs), outputs).astype(np.float32)
            layers.append((weight, bias))
        return layers
