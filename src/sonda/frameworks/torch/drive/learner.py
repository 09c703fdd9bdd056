"""One device that trains alone through whole epochs."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from sonda.frameworks.harness.batches import Images, learnt, pieces
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
            return learnt(self.images.order(epoch), self.batch)
        return pieces(self.images.numbers(part), self.batch)

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
