"""DLRM's own random inputs, draw by draw, without DLRM and without its tables.

The order of draws is that of `dlrm_data_pytorch.py` (facebookresearch/dlrm, commit 090956e): NumPy's legacy generator
is seeded when batch 0 is fetched, and gives for each batch the dense features, then table by table and sample by
sample the size of the bag (unless fixed) and its rows, then the targets. A bag holds the distinct rows drawn, sorted.
The stream therefore depends on the seed, the number of dense features, the rows of each table and the batches alone.
"""

from __future__ import annotations

from collections.abc import Iterator
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
    """What fixes the inputs of a DLRM program; `batches()` makes them."""

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
        draw = np.random.RandomState(self.seed)
        for number in range(len(self)):
            yield self._batch(draw, min(self.mini_batch_size, self.data_size - number * self.mini_batch_size))

    def _batch(self, draw: np.random.RandomState, samples: int) -> StreamBatch:
        dense = draw.random_sample((samples, self.dense_features)).astype(np.float32)
        indices = []
        sizes = np.empty((len(self.rows), samples), dtype=np.int64)
        for table, rows in enumerate(self.rows):
            bags = [self._bag(draw, rows) for _ in range(samples)]
            sizes[table] = [len(bag) for bag in bags]
            indices.append(np.concatenate(bags))
        targets = draw.random_sample((samples, 1)).astype(np.float32)
        if self.round_targets:
            targets = np.round(targets)
        return StreamBatch(dense, tuple(indices), sizes, targets)

    def _bag(self, draw: np.random.RandomState, rows: int) -> np.ndarray:
        count = self.indices_per_lookup
        if not self.fixed:
            # Python's round and NumPy's both go to the even neighbour, as DLRM's does.
            count = round(max(1.0, draw.random_sample() * min(rows, count)))
        return np.unique(np.round(draw.random_sample(count) * (rows - 1)).astype(np.int64))
