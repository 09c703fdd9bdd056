"""A whole training under a strategy of TensorFlow's: the batches of one process, and the network that learns them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from sonda.frameworks.harness.batches import cut_batches, cut_training_batches
from sonda.frameworks.tensorflow.drive.steps import wait
from sonda.workloads.data.epoch_batches import EpochBatches
from sonda.workloads.data.prepared import epoch_order
from sonda.workloads.data.training_set import TrainingSet
from sonda.workloads.in_tensorflow.strategies import MirroredNetwork, ParameterServerNetwork, split_batch
from sonda.workloads.networks.examples import images_channels_last
from sonda.workloads.networks.image_classifiers import ImageClassifier

LEAST_SAMPLES = 2
"""Samples that every replica needs in a training batch: a batch norm cannot be trained on one."""
ShareSizes = Callable[[int], Sequence[int]]
"""Takes the number of samples of a batch, and gives that of every replica of all processes."""


class StrategyBatches(EpochBatches):
    """This process' rows of every batch: those of its own replicas."""

    def __init__(
        self, data: TrainingSet, workload: ImageClassifier, seed: int, dtype: str, shares: ShareSizes, mine: slice
    ) -> None:
        """`mine`: which of all replicas are this process'."""
        super().__init__(data, workload, seed, dtype)
        self.shares, self.mine = shares, mine
        self.whole = workload.batch
        """Samples of the batch that was given last, all processes together."""

    def whole_batches(self, part: str, epoch: int) -> list[list[int]]:
        """Numbers of the images of every batch of a walk, of all processes."""
        if part == "train":
            order = epoch_order(self.data.shares["train"], self.seed, epoch)
            return cut_training_batches(order, self.batch, LEAST_SAMPLES * len(self.shares(self.batch)))
        return cut_batches(self.data.shares[part], self.batch)

    def chosen(self, part: str, epoch: int) -> list[list[int]]:
        return [self._own_rows(numbers) for numbers in self.whole_batches(part, epoch)]

    def _own_rows(self, numbers: list[int]) -> list[int]:
        shares = self.shares(len(numbers))
        first = sum(shares[: self.mine.start])
        return numbers[first : first + sum(shares[self.mine])]

    def sizes(self) -> dict[str, list[int]]:
        return {part: [size for size in sizes if size] for part, sizes in super().sizes().items()}

    def batches(self, part: str, epoch: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for numbers in self.whole_batches(part, epoch):
            self.whole = len(numbers)
            yield self.made(self._own_rows(numbers))


class StrategyLearner:
    """Learns from the rows of this process, which may be one of several."""

    def __init__(self, shared: MirroredNetwork | ParameterServerNetwork, batches: StrategyBatches) -> None:
        self.shared, self.rows = shared, batches
        self.network = shared.network
        self._learnt = False

    def _split(self, inputs: np.ndarray, targets: np.ndarray) -> Any:
        rows = self.rows
        shares = rows.shares(rows.whole)[rows.mine]
        values = tf.cast(tf.constant(images_channels_last(inputs)), self.network.kind)
        return self.shared.ready(split_batch(values, tf.constant(targets), shares), rows.whole)

    def ready(self, inputs: np.ndarray, targets: np.ndarray, train: bool) -> None:
        """Trace, optimise and run once. The weights do not change."""
        self.rows.whole = self._whole_batch_of(len(targets))
        batch = self._split(inputs, targets)
        if not train:
            self.shared.judge(batch)
            return
        initial = {name: weight.read_value() for name, weight in self.network.weights.items()}
        self.shared.learn(batch)
        for name, values in initial.items():
            self.network.weights[name].assign(values)

    def _whole_batch_of(self, own: int) -> int:
        """The size of the smallest batch of which this process has `own` rows."""
        rows = self.rows
        return next(size for size in range(own, rows.batch + 1) if sum(rows.shares(size)[rows.mine]) == own)

    def learn(self, inputs: np.ndarray, targets: np.ndarray) -> Any:
        """Run one step; returns the mean loss of this process' rows."""
        self._learnt = True
        losses = self.shared.learn(self._split(inputs, targets))
        for loss in losses:
            wait(loss)
        return _LazyMean(losses, self.rows.whole / len(targets))

    def judge(self, inputs: np.ndarray, targets: np.ndarray) -> tuple[Any, Any]:
        """The mean loss of this process' rows, and right answers in them."""
        if self._learnt:
            self.shared.settle()
            self._learnt = False
        if not len(targets):
            return 0.0, 0
        loss, right = self.shared.judge(self._split(inputs, targets))
        return loss / len(targets), right

    def arrays(self) -> dict[str, np.ndarray]:
        """The weights by PyTorch's names and in its layout."""
        return self.shared.arrays()


class _LazyMean:
    """The mean loss of some shares, from their parts of the loss of a batch; fetched when it is asked for."""

    def __init__(self, losses: Any, factor: float) -> None:
        self.losses, self.factor = losses, factor

    def __float__(self) -> float:
        return self.factor * sum(float(loss.fetch() if hasattr(loss, "fetch") else loss) for loss in self.losses)
