"""One device that trains alone through whole epochs: on Sonda's batches, or on those of somebody's own loaders."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from sonda.frameworks.harness.batches import Criteria, Images, Loaders, cut_batches, cut_training_batches
from sonda.frameworks.torch.drive.epochs import Batch


class Alone:
    """A learner that nobody has to wait for."""

    def __init__(self, task: Any, images: Images, batch: int, plain: Any = None) -> None:
        """`plain` is the model inside of the task's, where that is wrapped already."""
        self.task, self.images, self.batch = task, images, batch
        self.plain = task.model if plain is None else plain
        self.criterion = task.loss

    @property
    def dtype(self) -> Any:
        """The type of the model's weights, and so of its inputs."""
        return next(self.plain.parameters()).dtype

    def chosen(self, part: str, epoch: int) -> Sequence[list[int]]:
        if part == "train":
            return cut_training_batches(self.images.order(epoch), self.batch)
        return cut_batches(self.images.numbers(part), self.batch)

    def steps(self, part: str) -> int:
        return len(self.chosen(part, 0))

    def batches(self, part: str, epoch: int) -> Generator[Batch]:
        for inputs, labels in self.images.batches(self.chosen(part, epoch), self.dtype):
            yield Batch(inputs, self.images.target(labels, self.dtype), labels, len(labels), len(labels))

    def judge(self, output: Any, batch: Batch) -> tuple[Any, Any]:
        loss = self.criterion(output, batch.target).double() * len(batch.labels)
        return loss, (output.argmax(1) == batch.labels).sum()

    def together(self, numbers: list[float]) -> list[float]:
        return numbers

    def gather(self) -> None:
        """Nothing is elsewhere."""


class AloneOnLoaders:
    """The same with batches that somebody's own loaders give."""

    def __init__(self, task: Any, loaders: Loaders, criteria: Criteria, plain: Any = None) -> None:
        self.task, self.loaders, self.criteria = task, loaders, criteria
        self.plain = task.model if plain is None else plain

    def steps(self, part: str) -> int:
        return self.loaders.steps(part)

    def batches(self, part: str, epoch: int) -> Generator[Batch]:
        for loaded in self.loaders.walk(part, epoch):
            inputs, target = self.criteria.adapt(loaded.inputs), self.criteria.adapt(loaded.target)
            yield Batch(inputs, target, target, loaded.samples, loaded.samples)

    def judge(self, output: Any, batch: Batch) -> tuple[Any, Any]:
        return self.criteria.judge(output, batch.target, batch.counted)

    def together(self, numbers: list[float]) -> list[float]:
        return numbers

    def gather(self) -> None:
        """Nothing is elsewhere."""
