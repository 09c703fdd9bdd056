"""Batches of a prepared data set as NumPy arrays, for any framework."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sonda.record.errors import SondaError
from sonda.workloads.data.prepared import Prepared


def epoch_order(numbers: np.ndarray, seed: int, epoch: int) -> np.ndarray:
    """The same images in the order of an epoch: another one for each, the same for everybody who asks."""
    return np.random.default_rng([seed, epoch]).permutation(numbers)


def batches(
    prepared: Prepared, numbers: np.ndarray, size: int, *, drop_last: bool = False
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Images (float16) and classes of `size` images at a time, in the order of `numbers`; they are copies."""
    if size < 1:
        raise SondaError(f"a batch of {size}", "give 1 or more")
    for begin in range(0, len(numbers), size):
        chosen = numbers[begin : begin + size]
        if drop_last and len(chosen) < size:
            return
        yield prepared.images[chosen], prepared.labels[chosen]
