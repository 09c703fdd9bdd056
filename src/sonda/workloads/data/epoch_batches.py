"""Batches of whole epochs as NumPy arrays: the same images in the same order in every framework."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sonda.frameworks.harness.batches import cut_batches, cut_training_batches
from sonda.workloads.data.prepared import epoch_order
from sonda.workloads.data.training_set import TrainingSet
from sonda.workloads.networks.image_classifiers import ImageClassifier


class EpochBatches:
    """Batches of a training set in the form that a network takes.

    Inputs are samples x values for a perceptron, else samples x channels x height x width. Targets are classes as
    int64, or one-hot rows for the mean squared error.
    """

    def __init__(self, data: TrainingSet, workload: ImageClassifier, seed: int, dtype: str = "float32") -> None:
        self.data, self.seed, self.batch = data, seed, workload.batch
        self.dtype = np.dtype(dtype)
        self.flat, self.classes = workload.flat, workload.classes
        self.one_hot_targets = workload.loss == "mse"

    def chosen(self, part: str, epoch: int) -> list[list[int]]:
        """The image numbers of every batch of a walk."""
        if part == "train":
            return cut_training_batches(epoch_order(self.data.shares["train"], self.seed, epoch), self.batch)
        return cut_batches(self.data.shares[part], self.batch)

    def steps(self, part: str) -> int:
        return len(self.chosen(part, 0))

    def sizes(self) -> dict[str, list[int]]:
        """The different batch sizes of each part, largest first."""
        return {part: sorted({len(batch) for batch in self.chosen(part, 0)}, reverse=True) for part in self.data.shares}

    def batches(self, part: str, epoch: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Inputs and targets of a walk, one batch after the other."""
        for numbers in self.chosen(part, epoch):
            yield self.made(numbers)

    def made(self, numbers: list[int]) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and targets of the images of these numbers."""
        prepared = self.data.prepared
        images = prepared.images[numbers].astype(self.dtype)
        labels = prepared.labels[numbers]
        targets = np.eye(self.classes, dtype=self.dtype)[labels] if self.one_hot_targets else labels
        return images.reshape(len(images), -1) if self.flat else images, targets
