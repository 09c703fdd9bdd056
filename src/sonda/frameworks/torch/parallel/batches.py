"""A rank's share of every batch: each rank loads its own samples and none of the others'."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from sonda.record.errors import SondaError

PREFETCHED = 2
"""Batches that each worker process of PyTorch's DataLoader loads ahead."""


def scaled_shares(shares: Sequence[int], count: int) -> tuple[int, ...]:
    """Shares of a batch of `count` samples in the proportion of `shares`, at least 1 each; they sum to `count`.

    `count` must be at least the number of ranks.
    """
    whole = sum(shares)
    exact = [share * count / whole for share in shares]
    scaled = [max(1, int(value)) for value in exact]
    while sum(scaled) != count:
        step = 1 if sum(scaled) < count else -1
        candidates = [rank for rank in range(len(scaled)) if step > 0 or scaled[rank] > 1]
        nearest = max(candidates, key=lambda rank: step * (exact[rank] - scaled[rank]))
        scaled[nearest] += step
    return tuple(scaled)


class ShareSampler:
    """A DataLoader's `batch_sampler` that gives the positions of this rank's samples, batch by batch.

    All ranks walk through the same order, so together they see the batches of a single process. A last batch that is
    not full is shared in proportion. It is left out where it has fewer samples than there are ranks.
    """

    def __init__(self, order: Iterable[int], batch: int, shares_at: Callable[[int], Sequence[int]], rank: int) -> None:
        """`shares_at(step)` gives the shares of a step. It is called early where worker processes load ahead."""
        self.order = order
        self.batch = batch
        self.shares_at = shares_at
        self.rank = rank
        self.weights: deque[float] = deque()
        """This rank's fraction of each batch that was handed out, oldest first."""

    def __iter__(self) -> Iterator[list[int]]:
        order = iter(self.order)
        step = 0
        while True:
            positions = list(islice(order, self.batch))
            shares = self.shares_at(step)
            if len(positions) < self.batch:
                if len(positions) < len(shares):
                    return
                shares = scaled_shares(shares, len(positions))
            first = sum(shares[: self.rank])
            self.weights.append(shares[self.rank] / len(positions))
            yield positions[first : first + shares[self.rank]]
            step += 1


def cut_batch(value: Any, begin: int, end: int, samples: int) -> Any:
    """Samples `begin` up to `end` of a batch of `samples`, through nested lists, tuples and dictionaries.

    Raises SondaError where a tensor does not have one row per sample.
    """
    if isinstance(value, (list, tuple)):
        items = [cut_batch(item, begin, end, samples) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, dict):
        return {key: cut_batch(item, begin, end, samples) for key, item in value.items()}
    if not hasattr(value, "shape") or not value.shape:
        return value
    if len(value) != samples:
        shape = "x".join(map(str, value.shape))
        raise SondaError(
            f"a tensor of {shape} in a batch of {samples} samples cannot be shared among devices",
            "use a workload whose inputs and targets have one row per sample",
        )
    return value[begin:end]
