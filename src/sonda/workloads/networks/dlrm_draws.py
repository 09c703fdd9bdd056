"""DLRM's own random inputs, draw by draw, without DLRM and without its tables.

The order of draws is that of `dlrm_data_pytorch.py` (facebookresearch/dlrm, commit 090956e): NumPy's legacy generator
is seeded when batch 0 is fetched, and gives for each batch the dense features, then table by table and sample by
sample the size of the bag (unless fixed) and its rows, then the targets. A bag holds the distinct rows drawn, sorted.
The stream therefore depends on the seed, the number of dense features, the rows of each table and the batches alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class StreamBatch:
    """One batch of n samples."""

    dense: np.ndarray
    """n x dense features, float32."""
    indices: tuple[np.ndarray, ...]
    """For each table the rows of all bags, bag after bag, int64."""
    sizes: np.ndarray
    """tables x n: rows in each bag, int64."""
    targets: np.ndarray
    """n x 1, float32."""

    @property
    def offsets(self) -> np.ndarray:
        """tables x n: where each bag begins in `indices`, int64."""
        return np.cumsum(self.sizes, axis=1) - self.sizes


@dataclass(frozen=True)
class DlrmStream:
    """Everything that determines the inputs of a DLRM program; `batches()` makes them."""

    rows: tuple[int, ...]
    """Rows of each embedding table."""
    dense_features: int
    mini_batch_size: int = 1
    data_size: int = 1
    """Samples in all batches together; the last batch holds the remainder."""
    indices_per_lookup: int = 10
    """Rows drawn for a bag if `fixed`, else the most that may be drawn: the mean is half of it."""
    fixed: bool = False
    round_targets: bool = False
    seed: int = 123

    def __len__(self) -> int:
        """Number of batches."""
        return -(-self.data_size // self.mini_batch_size)

    def batches(self) -> Iterator[StreamBatch]:
        """Every batch in order, from the seed on."""
        draws = _Draws(self.seed)
        for number in range(len(self)):
            yield self._batch(draws, min(self.mini_batch_size, self.data_size - number * self.mini_batch_size))

    def _batch(self, draws: _Draws, samples: int) -> StreamBatch:
        dense = draws.take(samples * self.dense_features).reshape(samples, self.dense_features).astype(np.float32)
        indices = []
        sizes = np.empty((len(self.rows), samples), dtype=np.int64)
        for table, rows in enumerate(self.rows):
            drawn, counts = self._draw_bags(draws, rows, samples)
            bags, sizes[table] = _distinct(np.round(drawn * (rows - 1)).astype(np.int64), counts, rows)
            indices.append(bags)
        targets = draws.take(samples).reshape(samples, 1).astype(np.float32)
        if self.round_targets:
            targets = np.round(targets)
        return StreamBatch(dense, tuple(indices), sizes, targets)

    def _draw_bags(self, draws: _Draws, rows: int, samples: int) -> tuple[np.ndarray, np.ndarray]:
        """Numbers drawn for the bags of a table, bag after bag, and how many for each bag."""
        most = self.indices_per_lookup
        if self.fixed:
            return draws.take(samples * most), np.full(samples, most, dtype=np.int64)
        bags, counts = [], np.empty(samples, dtype=np.int64)
        for sample in range(samples):
            # Python's round and NumPy's both go to the even neighbour, as DLRM's does.
            counts[sample] = count = round(max(1.0, draws.take(1)[0] * min(rows, most)))
            bags.append(draws.take(count))
        return np.concatenate(bags), counts


class _Draws:
    """Numbers of NumPy's legacy generator, uniform in [0, 1): the same however many are asked for at a time."""

    AHEAD = 1 << 16

    def __init__(self, seed: int) -> None:
        self._generator = np.random.RandomState(seed)
        self._drawn = np.empty(0)
        self._next = 0

    def take(self, count: int) -> np.ndarray:
        """The next numbers, not to be changed."""
        missing = count - (len(self._drawn) - self._next)
        if missing > 0:
            fresh = self._generator.random_sample(max(missing, self.AHEAD))
            self._drawn, self._next = np.concatenate((self._drawn[self._next :], fresh)), 0
        self._next += count
        return self._drawn[self._next - count : self._next]


def _distinct(indices: np.ndarray, counts: np.ndarray, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """The distinct rows of each bag, sorted, bag after bag; and how many each has."""
    bag = np.repeat(np.arange(len(counts)), counts)
    ordered = np.sort(bag * rows + indices)
    distinct = ordered[np.concatenate(([True], ordered[1:] != ordered[:-1]))]
    bag = distinct // rows
    return distinct - bag * rows, np.bincount(bag, minlength=len(counts))


# ---- DLRM's own initial weights, draw by draw: tables, then the bottom perceptron, then the top one -----------------

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
        """Only the rows `wanted` of the table, which ascend, float32.

        The whole table is drawn part by part and forgotten again, so that tables of any size fit in memory.
        """
        chosen = np.empty((len(wanted), columns), dtype=np.float32)
        for first, part in self._parts(rows, columns):
            begin, end = np.searchsorted(wanted, (first, first + len(part)))
            chosen[begin:end] = part[wanted[begin:end] - first]
        return chosen

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
