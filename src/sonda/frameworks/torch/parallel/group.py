"""Groups of ranks that train together, and the exchanges between them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from time import perf_counter
from typing import Any

from sonda.frameworks.torch.parallel.shared_memory import SharedMemory, keep_freed_memory, shared_bytes

TIMEOUT_S = 300
"""How long a rank waits for another one. A rank that died is noticed at once, by its closed connections."""
Waiting = Callable[[], AbstractContextManager[Any]]
"""Makes a context that a rank enters while it only waits for others."""


class ExchangeMeter:
    """Adds up the time that a rank spends exchanging, s. It calls `listener` with every stretch of that time."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.listener: Callable[[float], None] = lambda seconds: None

    @contextmanager
    def measure(self) -> Iterator[None]:
        """Add the time of the block."""
        begin = perf_counter()
        try:
            yield
        finally:
            self.add(perf_counter() - begin)

    def add(self, seconds: float) -> None:
        self.seconds += seconds
        self.listener(seconds)

    def take(self) -> float:
        """The time added since the last call, s."""
        seconds, self.seconds = self.seconds, 0.0
        return seconds


class Communicator:
    """Exchanges tensors among some of the ranks of a run, in order.

    `me` is this rank's position among them; -1 where it is not a member.
    """

    def __init__(self, ranks: Sequence[int], gradients: Any, small: Any, meter: ExchangeMeter) -> None:
        """`gradients` and `small` are process groups of PyTorch. Exchanges in one never wait for the other, and within
        each they have the same order on every rank."""
        self.ranks = tuple(ranks)
        self.size = len(self.ranks)
        own = int(os.environ["RANK"])
        self.me = self.ranks.index(own) if own in self.ranks else -1
        self.gradients = gradients
        self.small = small
        self.meter = meter
        self.memory: SharedMemory | None = None
        """Replaces the process groups once `use_shared_memory` was called."""

    def use_shared_memory(self, model: Any, keys: Any, timeout_s: float = TIMEOUT_S) -> None:
        """Exchange through shared memory from now on, with room for this model's gradients.

        All ranks must run on processors of this machine. `keys` is a store of PyTorch that all ranks see.
        """
        if self.size > 1 and self.me >= 0:
            keep_freed_memory()
            name = "memory-" + "-".join(map(str, self.ranks))
            self.memory = SharedMemory(self.me, self.size, keys, name, shared_bytes(model), timeout_s)

    def sum(self, values: Any) -> Any:
        """Sum a small tensor over all ranks, in place, and return it. Meters the time until all ranks have come."""
        if self.size == 1:
            return values
        if self.memory is not None:
            return values.copy_(self.gather(values.reshape(-1)).sum(0).view_as(values))
        import torch.distributed as dist

        with hide_from_counter(), self.meter.measure():
            dist.all_reduce(values, group=self.small)
        return values

    def sum_large(self, values: Any) -> None:
        """Sum gradients or weights over all ranks, in place, and wait for the result. Meters all of that time."""
        if self.size == 1:
            return
        import torch
        import torch.distributed as dist

        with hide_from_counter(), self.meter.measure():
            if self.memory is not None:
                self.memory.add(values, *self.memory.write(values))
                self.memory.end_step()
                self.memory.take_waited()
                return
            dist.all_reduce(values, group=self.gradients)
            if values.is_cuda:
                torch.cuda.synchronize(values.device)

    def gather(self, values: Any) -> Any:
        """The one-dimensional tensors of all ranks as rows; their lengths must be equal."""
        if self.memory is not None and self.size > 1:
            with hide_from_counter():
                rows = self.memory.gather(values)
            self.meter.add(self.memory.take_waited())
            return rows
        # A sum with zeros is exact, and every backend can do it for tensors of every device.
        rows = values.new_zeros((self.size, len(values)))
        rows[self.me] = values
        return self.sum(rows)

    def gather_numbers(self, own: Sequence[float]) -> list[list[float]]:
        """The numbers of every rank, in the order of ranks."""
        import torch

        return self.gather(torch.tensor(list(own), dtype=torch.float64)).tolist()

    def barrier(self) -> None:
        """Wait until every rank has called this."""
        self.gather_numbers([0.0])


def hide_from_counter() -> AbstractContextManager[Any]:
    """A context whose operations are not counted: an exchange is not arithmetic of this rank."""
    from torch._C import _len_torch_dispatch_stack

    if not _len_torch_dispatch_stack():  # nothing is counted; batch norms exchange too often for more checks
        return nullcontext()
    from torch.utils._python_dispatch import _disable_current_modes

    return _disable_current_modes()


def join_ranks(backend: str, meter: ExchangeMeter, timeout_s: float = TIMEOUT_S) -> Communicator:
    """Join all ranks that were started together; `RANK`, `WORLD_SIZE` and the rest are in the environment."""
    import torch.distributed as dist

    dist.init_process_group(backend, timeout=timedelta(seconds=timeout_s))
    return make_group(range(dist.get_world_size()), meter, timeout_s)


def make_group(ranks: Sequence[int], meter: ExchangeMeter, timeout_s: float = TIMEOUT_S) -> Communicator:
    """Make a group of some ranks. Every rank of the run must call this, members and others."""
    import torch.distributed as dist

    limit = timedelta(seconds=timeout_s)
    # Small exchanges go through the processor: they are numbers, or statistics that gloo fetches from a GPU.
    gradients, small = (dist.new_group(list(ranks), timeout=limit, backend=name) for name in (None, "gloo"))
    return Communicator(ranks, gradients, small, meter)


def leave_ranks() -> None:
    """Leave the process group that `join_ranks` joined."""
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()
