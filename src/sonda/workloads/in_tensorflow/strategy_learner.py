"""A whole training under a strategy of TensorFlow's: the batches of one process, and the learner they are given to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from sonda.frameworks.harness.batches import learnt, pieces
from sonda.frameworks.tensorflow.drive.steps import wait
from sonda.workloads.data.epoch_batches import EpochBatches
from sonda.workloads.data.prepared import epoch_order
from sonda.workloads.data.training_set import TrainingSet
from sonda.workloads.in_tensorflow.strategies import Mirroring, Serving, cut
from sonda.workloads.networks.examples import arranged
from sonda.workloads.networks.image_classifiers import ImageClassifier

LEAST = 2
"""Samples for every replica in a batch that is trained on: a batch norm cannot be trained on one."""
Shares = Callable[[int], Sequence[int]]
"""From the samples of a batch to those of every replica of all processes."""


class SharedBatches(EpochBatches):
    """This process' rows of every batch: those of its own replicas."""

    def __init__(
        self, data: TrainingSet, workload: ImageClassifier, seed: int, dtype: str, shares: Shares, mine: slice
    ) -> None:
        """`mine`: the replicas that are this process'."""
        super().__init__(data, workload, seed, dtype)
        self.shares, self.mine = shares, mine
        self.whole = workload.batch
        """Samples of the batch that was handed out last, all processes together."""

    def whole_batches(self, part: str, epoch: int) -> list[list[int]]:
        """Numbers of the images of every batch of a walk, whoever takes them."""
        if part == "train":
            order = epoch_order(self.data.shares["train"], self.seed, epoch)
            return learnt(order, self.batch, LEAST * len(self.shares(self.batch)))
        return pieces(self.data.shares[part], self.batch)

    def chosen(self, part: str, epoch: int) -> list[list[int]]:
        return [self._own(numbers) for numbers in self.whole_batches(part, epoch)]

    def _own(self, numbers: list[int]) -> list[int]:
        shares = self.shares(len(numbers))
        first = sum(shares[: self.mine.start])
        return numbers[first : first + sum(shares[self.mine])]

    def sizes(self) -> dict[str, list[int]]:
        return {part: [size for size in sizes if size] for part, sizes in super().sizes().items()}

    def batches(self, part: str, epoch: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for numbers in self.whole_batches(part, epoch):
            self.whole = len(numbers)
            yield self.made(self._own(numbers))


class SharedLearner:
    """Learns from the rows of one process, as one of several or alone."""

    def __init__(self, shared: Mirroring | Serving, batches: SharedBatches) -> None:
        self.shared, self.rows = shared, batches
        self.network = shared.network
        self._learnt = False

    def _given(self, inputs: np.ndarray, targets: np.ndarray) -> Any:
        rows = self.rows
        shares = rows.shares(rows.whole)[rows.mine]
        values = tf.cast(tf.constant(arranged(inputs)), self.network.kind)
        return self.shared.ready(cut(values, tf.constant(targets), shares), rows.whole)

    def ready(self, inputs: np.ndarray, targets: np.ndarray, train: bool) -> None:
        """Trace, optimise and run once; weights are as before."""
        self.rows.whole = self._whole_of(len(targets))
        batch = self._given(inputs, targets)
        if not train:
            self.shared.judge(batch)
            return
        kept = {name: weight.read_value() for name, weight in self.network.weights.items()}
        self.shared.learn(batch)
        for name, values in kept.items():
            self.network.weights[name].assign(values)

    def _whole_of(self, own: int) -> int:
        """The least batch of which this process has so many rows."""
        rows = self.rows
        return next(size for size in range(own, rows.batch + 1) if sum(rows.shares(size)[rows.mine]) == own)

    def learn(self, inputs: np.ndarray, targets: np.ndarray) -> Any:
        """One step; the mean loss of this process' rows."""
        self._learnt = True
        losses = self.shared.learn(self._given(inputs, targets))
        for loss in losses:
            wait(loss)
        return _Mean(losses, self.rows.whole / len(targets))

    def judge(self, inputs: np.ndarray, targets: np.ndarray) -> tuple[Any, Any]:
        """The mean loss of this process' rows, and right answers in them."""
        if self._learnt:
            self.shared.settle()
            self._learnt = False
        if not len(targets):
            return 0.0, 0
        loss, right = self.shared.judge(self._given(inputs, targets))
        return loss / len(targets), right

    def arrays(self) -> dict[str, np.ndarray]:
        """The weights by PyTorch's names and in its layout."""
        return self.shared.arrays()


class _Mean:
    """A loss that is asked for later: shares' parts of the loss of a batch, as the mean of these shares."""

    def __init__(self, losses: Any, factor: float) -> None:
        self.losses, self.factor = losses, factor

    def __float__(self) -> float:
        return self.factor * sum(float(one.fetch() if hasattr(one, "fetch") else one) for one in self.losses)
