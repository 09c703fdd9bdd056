"""Synthetic examples and the order in which batches take them: the same in every framework, from numpy's generator."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np

from sonda.workloads.networks.network import Network

DISTINCT_BATCHES = 4
"""Distinct batches that a synthetic data set holds."""
DATA_SEED = 1
"""Set beside the seed: with the seed alone, data would be the same numbers as the initial weights."""


def synthetic_examples(network: Network, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and targets of `DISTINCT_BATCHES` batches; row i of each is example i.

    The first batch is the input of an inference step.
    """
    return network.draw_examples(np.random.default_rng((seed, DATA_SEED)), DISTINCT_BATCHES * network.batch)


def images_channels_last(inputs: np.ndarray) -> np.ndarray:
    """Images with their channels last; inputs that are no images as they are."""
    return np.ascontiguousarray(inputs.transpose(0, 2, 3, 1)) if inputs.ndim == 4 else inputs


def draw_positions(length: int, seed: int, shuffled: bool = True) -> Iterator[int]:
    """Endless positions from 0 to length - 1; if `shuffled`, each round in a new order that depends on the seed."""
    generator: Any = np.random.default_rng(seed)
    while True:
        yield from generator.permutation(length).tolist() if shuffled else range(length)


def batch_numbers(length: int, batch: int, seed: int) -> Iterator[np.ndarray]:
    """Endless batches: the positions of their examples, int64. A batch may span two rounds through the data set."""
    order = draw_positions(length, seed)
    while True:
        yield np.fromiter(islice(order, batch), np.int64, batch)
