"""Synthetic examples and the order in which batches take them: the same in every framework, from numpy's generator."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np

from sonda.record.errors import SondaError
from sonda.workloads.convnet import ConvNet
from sonda.workloads.description import Description
from sonda.workloads.perceptron import Perceptron
from sonda.workloads.resnet import ResNet
from sonda.workloads.transformer import Transformer

BATCHES_KEPT = 4
"""Distinct batches that a synthetic data set holds."""
APART = 1
"""Set beside the seed: with the seed alone, data would be the same numbers as the first weights."""


def examples(description: Description, seed: int) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """Inputs and targets; row i of each is example i. The first batch is what an inference step is given.

    Perceptron: uniform values in 0 to 1. Images: samples x channels x height x width of the normal distribution. Both:
    uniform classes as int64, or under the mean squared error as float32 rows of 0 and 1. Transformer: int64 tokens; the
    targets are the next ones. Raises SondaError for a workload that is none of these.
    """
    drawn = np.random.default_rng((seed, APART))
    if isinstance(description, Perceptron):
        count = BATCHES_KEPT * description.batch
        inputs = drawn.random((count, description.layers[0]), dtype=np.float32)
        classes = drawn.integers(description.layers[-1], size=count)
        if description.loss == "mse":
            return (inputs,), np.eye(description.layers[-1], dtype=np.float32)[classes]
        return (inputs,), classes
    if isinstance(description, ConvNet | ResNet):
        count = BATCHES_KEPT * description.batch
        shape = (count, description.channels, *description.image)
        images = drawn.standard_normal(shape, dtype=np.float32)
        return (images,), drawn.integers(description.classes, size=count)
    if isinstance(description, Transformer):
        count = BATCHES_KEPT * description.batch
        text = drawn.integers(description.vocabulary, size=(count, description.length + 1))
        return (text[:, :-1],), text[:, 1:]
    raise SondaError(
        f"{description.name} has no examples that every framework has",
        "use mlp, cnn, resnet18, resnet34, resnet50 or transformer, or --framework torch",
    )


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
