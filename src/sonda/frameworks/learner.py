"""One device that trains alone through whole epochs."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any, Protocol

from sonda.frameworks.torch_epochs import Batch

LEAST = 2
"""Samples of a batch: a batch norm cannot be trained on one."""


class Images(Protocol):
    """The data of a training: numbers of images, and batches of any of them on the device."""

    def order(self, epoch: int) -> Any: ...

    def numbers(self, part: str) -> Any: ...

    def batches(self, chosen: Any, dtype: Any) -> Iterator[tuple[tuple[Any, ...], Any]]: ...

    def labels(self, numbers: Sequence[int]) -> Any: ...

    def target(self, labels: Any, dtype: Any) -> Any: ...


def pieces(numbers: Any, size: int) -> list[list[int]]:
    """Numbers in batches, in their order; the last may be smaller."""
    return [numbers[begin : begin + size].tolist() for begin in range(0, len(numbers), size)]


def learnt(order: Any, size: int, least: int = LEAST) -> list[list[int]]:
    """Batches of an epoch; a last one of fewer than `least` samples is left out."""
    cut = pieces(order, size)
    return cut[:-1] if cut and len(cut[-1]) < least else cut


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
