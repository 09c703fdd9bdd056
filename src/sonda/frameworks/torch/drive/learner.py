"""Learners on one device, through whole epochs: on Sonda's batches, or on those of the user's own loaders."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from sonda.frameworks.harness.batches import Criteria, Images, Loaders, cut_batches, cut_training_batches
from sonda.frameworks.torch.drive.epochs import StepBatch


class SingleLearner:
    """A learner without other ranks, on Sonda's batches."""

    def __init__(self, task: Any, images: Images, batch: int, plain: Any = None) -> None:
        """`plain` is the model itself where the task's model wraps it; by default the task's model."""
        self.task, self.images, self.batch = task, images, batch
        self.plain = task.model if plain is None else plain
        self.criterion = task.loss

    @property
    def dtype(self) -> Any:
        """The type of the model's weights, and so of its inputs."""
        return next(self.plain.parameters()).dtype

    def _sample_numbers(self, part: str, epoch: int) -> Sequence[list[int]]:
        """The numbers of the samples of each batch."""
        if part == "train":
            return cut_training_batches(self.images.order(epoch), self.batch)
        return cut_batches(self.images.numbers(part), self.batch)

    def steps(self, part: str) -> int:
        return len(self._sample_numbers(part, 0))

    def batches(self, part: str, epoch: int) -> Generator[StepBatch]:
        for inputs, labels in self.images.batches(self._sample_numbers(part, epoch), self.dtype):
            yield StepBatch(inputs, self.images.target(labels, self.dtype), labels, len(labels), len(labels))

    def judge(self, output: Any, batch: StepBatch) -> tuple[Any, Any]:
        loss = self.criterion(output, batch.target).double() * len(batch.labels)
        return loss, (output.argmax(1) == batch.labels).sum()

    def sum_over_ranks(self, numbers: list[float]) -> list[float]:
        return numbers

    def gather_weights(self) -> None:
        """Does nothing: this device has the whole model."""


class SingleLoaderLearner:
    """A learner without other ranks, on the batches of the user's own loaders."""

    def __init__(self, task: Any, loaders: Loaders, criteria: Criteria, plain: Any = None) -> None:
        self.task, self.loaders, self.criteria = task, loaders, criteria
        self.plain = task.model if plain is None else plain

    def steps(self, part: str) -> int:
        return self.loaders.steps(part)

    def batches(self, part: str, epoch: int) -> Generator[StepBatch]:
        for loaded in self.loaders.walk(part, epoch):
            inputs, target = self.criteria.adapt(loaded.inputs), self.criteria.adapt(loaded.target)
            yield StepBatch(inputs, target, target, loaded.samples, loaded.samples)

    def judge(self, output: Any, batch: StepBatch) -> tuple[Any, Any]:
        return self.criteria.judge(output, batch.target, batch.counted)

    def sum_over_ranks(self, numbers: list[float]) -> list[float]:
        return numbers

    def gather_weights(self) -> None:
        """Does nothing: this device has the whole model."""
