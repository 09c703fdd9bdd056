"""Synthetic examples and the order in which batches take them: the same in every framework, from numpy's generator."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np

from sonda.workloads.networks.network import Network

BATCHES_KEPT = 4
"""Distinct batches that a synthetic data set holds."""
APART = 1
"""Set beside the seed: with the seed alone, data would be the same numbers as the first weights."""


def examples(network: Network, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and targets of some batches; row i of each is example i. The first batch is what an inference step is
    given."""
    return network.draw_examples(np.random.default_rng((seed, APART)), BATCHES_KEPT * network.batch)


def arranged(inputs: np.ndarray) -> np.ndarray:
    """Images with their channels last, for frameworks that want them so; other inputs as they are."""
    return np.ascontiguousarray(inputs.transpose(0, 2, 3, 1)) if inputs.ndim == 4 else inputs


def positions(length: int, seed: int, shuffled: bool = True) -> Iterator[int]:
    """Positions 0 to length-1 again and again; if `shuffled`, in a new order each time that depends on the seed."""
    drawn: Any = np.random.default_rng(seed)
    while True:
        yield from drawn.permutation(length).tolist() if shuffled else range(length)


def batch_numbers(length: int, batch: int, seed: int) -> Iterator[np.ndarray]:
    """Endless batches: the positions of their examples, int64. A batch may span two rounds through the data set."""
    order = positions(length, seed)
    while True:
        yield np.fromiter(islice(order, batch), np.int64, batch)
