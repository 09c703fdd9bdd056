"""The batches of an epoch, whoever trains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

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
