"""The batches of an epoch, whoever trains."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

LEAST = 2
"""Samples of a batch: a batch norm cannot be trained on one."""


class Images(Protocol):
    """The data of a training: numbers of images, and batches of any of them on the device."""

    def order(self, epoch: int) -> Any: ...

    def numbers(self, part: str) -> Any: ...

    def batches(self, chosen: Any, dtype: Any) -> Iterator[tuple[tuple[Any, ...], Any]]: ...

    def labels(self, numbers: Sequence[int]) -> Any: ...

    def target(self, labels: Any, dtype: Any) -> Any: ...


class LoadedBatchProtocol(Protocol):
    """One batch of somebody's own loader, where the loader left it."""

    @property
    def inputs(self) -> tuple[Any, ...]: ...

    @property
    def target(self) -> Any: ...

    @property
    def samples(self) -> int: ...


class Loaders(Protocol):
    """The data of a training as somebody's own loaders give them, batch by batch."""

    def steps(self, part: str) -> int: ...

    def walk(self, part: str, epoch: int) -> Iterator[LoadedBatchProtocol]: ...


class Criteria(NamedTuple):
    """How batches of somebody's own loaders are made ready, and answers judged."""

    adapt: Callable[[Any], Any]
    """A batch in the precision and layout of the model, and on its device."""
    loss: Callable[[Any, Any], Any]
    """The mean over the samples of output and target."""
    accuracy: Callable[[Any, Any], Any]
    """The share of right answers, 0 to 1; NaN where nobody can tell."""

    def judge(self, output: Any, target: Any, samples: int) -> tuple[Any, Any]:
        """Sum of the losses, and right answers, of a batch."""
        return self.loss(output, target).double() * samples, self.accuracy(output, target) * samples


def cut_batches(numbers: Any, size: int) -> list[list[int]]:
    """Numbers in batches, in their order; the last may be smaller."""
    return [numbers[begin : begin + size].tolist() for begin in range(0, len(numbers), size)]


def cut_training_batches(order: Any, size: int, least: int = LEAST) -> list[list[int]]:
    """Batches of an epoch; a last one of fewer than `least` samples is left out."""
    cut = cut_batches(order, size)
    return cut[:-1] if cut and len(cut[-1]) < least else cut
