"""A rank's share of every batch: the samples that it loads itself, and never those of others."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from sonda.record.errors import SondaError

PREFETCHED = 2
"""Batches that each worker process of PyTorch's DataLoader loads ahead."""


def scaled_shares(shares: Sequence[int], count: int) -> tuple[int, ...]:
    """The shares of a batch that holds `count` samples only, in proportion, at least 1 each; they sum to `count`.

    `count` is at least the number of ranks.
    """
    whole = sum(shares)
    exact = [share * count / whole for share in shares]
    found = [max(1, int(value)) for value in exact]
    while sum(found) != count:
        step = 1 if sum(found) < count else -1
        candidates = [rank for rank in range(len(found)) if step > 0 or found[rank] > 1]
        nearest = max(candidates, key=lambda rank: step * (exact[rank] - found[rank]))
        found[nearest] += step
    return tuple(found)


class SharedBatches:
    """For a DataLoader's `batch_sampler`: the positions of this rank's samples in one batch after another.

    All ranks walk through the same order, so together they see every batch of a single process. A last batch that is
    not full is shared in proportion, or left out where there is not a sample for everybody.
    """

    def __init__(self, order: Iterable[int], batch: int, shares_at: Callable[[int], Sequence[int]], rank: int) -> None:
        """`shares_at(step)` are the shares in force at a step; asked ahead where worker processes load ahead."""
        self.order = order
        self.batch = batch
        self.shares_at = shares_at
        self.rank = rank
        self.weights: deque[float] = deque()
        """This rank's part of each batch that was handed out, oldest first."""

    def __iter__(self) -> Iterator[list[int]]:
        positions = iter(self.order)
        step = 0
        while True:
            taken = list(islice(positions, self.batch))
            shares = self.shares_at(step)
            if len(taken) < self.batch:
                if len(taken) < len(shares):
                    return
                shares = scaled_shares(shares, len(taken))
            first = sum(shares[: self.rank])
            self.weights.append(shares[self.rank] / len(taken))
            yield taken[first : first + shares[self.rank]]
            step += 1


def cut(value: Any, begin: int, end: int, samples: int) -> Any:
    """Samples `begin` up to `end` of a batch of `samples`, however it is nested.

    Raises SondaError where a tensor does not have one row per sample.
    """
    if isinstance(value, (list, tuple)):
        items = [cut(item, begin, end, samples) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, dict):
        return {key: cut(item, begin, end, samples) for key, item in value.items()}
    if not hasattr(value, "shape") or not value.shape:
        return value
    if len(value) != samples:
        shape = "x".join(map(str, value.shape))
        raise SondaError(
            f"a tensor of {shape} in a batch of {samples} samples cannot be shared among devices",
            "use a workload whose inputs and targets have one row per sample",
        )
    return value[begin:end]
