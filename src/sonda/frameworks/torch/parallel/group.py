"""The group: the ranks that train together, and what they tell each other beside gradients."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from time import perf_counter
from typing import Any

from sonda.frameworks.torch.parallel.shared_memory import SharedMemory, keep_freed_memory, room_for

TIMEOUT_S = 300
"""How long a rank waits for another before it gives up. One that died is seen at once, by its closed connections."""
Waiting = Callable[[], AbstractContextManager[Any]]
"""Entered while a rank does nothing but wait for gradients."""


class Meter:
    """Adds up the time that a rank spent exchanging with others, s; `told` hears of every stretch of it."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.told: Callable[[float], None] = lambda seconds: None

    @contextmanager
    def measured(self) -> Iterator[None]:
        begin = perf_counter()
        try:
            yield
        finally:
            self.add(perf_counter() - begin)

    def add(self, seconds: float) -> None:
        self.seconds += seconds
        self.told(seconds)

    def take(self) -> float:
        """What has come together since the last call."""
        seconds, self.seconds = self.seconds, 0.0
        return seconds


class Group:
    """Some of the ranks of a run, in their order. `me` is this rank's place among them, -1 for one that is left out."""

    def __init__(self, ranks: Sequence[int], gradients: Any, small: Any, meter: Meter) -> None:
        """`gradients` and `small` are process groups of PyTorch's: what is exchanged in one never waits for the other,
        and the order within each is the same on every rank."""
        self.ranks = tuple(ranks)
        self.size = len(self.ranks)
        own = int(os.environ["RANK"])
        self.me = self.ranks.index(own) if own in self.ranks else -1
        self.gradients = gradients
        self.small = small
        self.meter = meter
        self.memory: SharedMemory | None = None
        """Where everything is exchanged instead, once `through_memory` was called."""

    def through_memory(self, model: Any, keys: Any, timeout_s: float = TIMEOUT_S) -> None:
        """Exchange through shared memory from now on, with room for this model's gradients.

        All ranks must be processors of this machine. `keys` is a store of PyTorch's that all ranks see.
        """
        if self.size > 1 and self.me >= 0:
            keep_freed_memory()
            name = "memory-" + "-".join(map(str, self.ranks))
            self.memory = SharedMemory(self.me, self.size, keys, name, room_for(model), timeout_s)

    def sum(self, values: Any) -> Any:
        """The sum of a small tensor over all ranks, in place. The time until all are there is metered."""
        if self.size == 1:
            return values
        if self.memory is not None:
            return values.copy_(self.gather(values.reshape(-1)).sum(0).view_as(values))
        import torch.distributed as dist

        with unseen(), self.meter.measured():
            dist.all_reduce(values, group=self.small)
        return values

    def sum_large(self, values: Any) -> None:
        """The sum of gradients or weights over all ranks, in place and to its end; all of that time is metered."""
        if self.size == 1:
            return
        import torch
        import torch.distributed as dist

        with unseen(), self.meter.measured():
            if self.memory is not None:
                self.memory.add(values, *self.memory.write(values))
                self.memory.step_ends()
                self.memory.take_waited()
                return
            dist.all_reduce(values, group=self.gradients)
            if values.is_cuda:
                torch.cuda.synchronize(values.device)

    def gather(self, values: Any) -> Any:
        """One row per rank of a one-dimensional tensor of the same length everywhere."""
        if self.memory is not None and self.size > 1:
            with unseen():
                rows = self.memory.gather(values)
            self.meter.add(self.memory.take_waited())
            return rows
        # A sum with zeros: exact, and every backend can do it for tensors of every device.
        rows = values.new_zeros((self.size, len(values)))
        rows[self.me] = values
        return self.sum(rows)

    def numbers(self, own: Sequence[float]) -> list[list[float]]:
        """The numbers of every rank, in the order of ranks."""
        import torch

        return self.gather(torch.tensor(list(own), dtype=torch.float64)).tolist()

    def barrier(self) -> None:
        """Wait until every rank is here."""
        self.numbers([0.0])


def unseen() -> AbstractContextManager[Any]:
    """Hide what is inside from whoever counts operations: an exchange is no arithmetic of this rank's."""
    from torch._C import _len_torch_dispatch_stack

    if not _len_torch_dispatch_stack():  # nobody counts: batch norms exchange too often to look further
        return nullcontext()
    from torch.utils._python_dispatch import _disable_current_modes

    return _disable_current_modes()


def join(backend: str, meter: Meter, timeout_s: float = TIMEOUT_S) -> Group:
    """The group of all ranks that were started together: `RANK`, `WORLD_SIZE` and the rest are in the environment."""
    import torch.distributed as dist

    dist.init_process_group(backend, timeout=timedelta(seconds=timeout_s))
    return part(range(dist.get_world_size()), meter, timeout_s)


def part(ranks: Sequence[int], meter: Meter, timeout_s: float = TIMEOUT_S) -> Group:
    """A group of some ranks. Every rank of the run must call this, also one that is not among them."""
    import torch.distributed as dist

    limit = timedelta(seconds=timeout_s)
    # Small things go through the processor: they are numbers, or statistics that gloo fetches from a GPU.
    gradients, small = (dist.new_group(list(ranks), timeout=limit, backend=name) for name in (None, "gloo"))
    return Group(ranks, gradients, small, meter)


def leave() -> None:
    """End what `join` began."""
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()
