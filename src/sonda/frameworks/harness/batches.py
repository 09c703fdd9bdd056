"""The batches of an epoch: how they are cut, and what loaders of a user's own must give."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

LEAST = 2
"""The fewest samples of a training batch: a batch norm cannot be trained on one."""


class Images(Protocol):
    """The data of a training: numbers of images, and batches of chosen images on the device."""

    def order(self, epoch: int) -> Any: ...

    def numbers(self, part: str) -> Any: ...

    def batches(self, chosen: Any, dtype: Any) -> Iterator[tuple[tuple[Any, ...], Any]]: ...

    def labels(self, numbers: Sequence[int]) -> Any: ...

    def target(self, labels: Any, dtype: Any) -> Any: ...


class LoadedBatchProtocol(Protocol):
    """One batch of a user's own loader, on the device where the loader left it."""

    @property
    def inputs(self) -> tuple[Any, ...]: ...

    @property
    def target(self) -> Any: ...

    @property
    def samples(self) -> int: ...


class Loaders(Protocol):
    """The data of a training from a user's own loaders, batch by batch."""

    def steps(self, part: str) -> int: ...

    def walk(self, part: str, epoch: int) -> Iterator[LoadedBatchProtocol]: ...


class Criteria(NamedTuple):
    """How batches of a user's own loaders are prepared, and outputs judged."""

    adapt: Callable[[Any], Any]
    """Gives a batch in the precision and layout of the model, on its device."""
    loss: Callable[[Any, Any], Any]
    """Gives the mean loss over the samples of output and target."""
    accuracy: Callable[[Any, Any], Any]
    """Gives the share of right answers, 0 to 1; NaN where that is not defined."""

    def judge(self, output: Any, target: Any, samples: int) -> tuple[Any, Any]:
        """The sum of the losses and the number of right answers of a batch."""
        return self.loss(output, target).double() * samples, self.accuracy(output, target) * samples


def cut_batches(numbers: Any, size: int) -> list[list[int]]:
    """Cut numbers into batches, in their order; the last batch may be smaller."""
    return [numbers[begin : begin + size].tolist() for begin in range(0, len(numbers), size)]


def cut_training_batches(order: Any, size: int, least: int = LEAST) -> list[list[int]]:
    """Cut an epoch into batches; a last batch with fewer than `least` samples is left out."""
    batches = cut_batches(order, size)
    return batches[:-1] if batches and len(batches[-1]) < least else batches
