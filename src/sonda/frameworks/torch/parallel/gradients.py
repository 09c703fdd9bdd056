"""Gradients of unequal shares: the mean over the whole batch, exactly, and the time it takes to exchange them.

A rank with n_i of N samples weighs its loss by n_i / N, which weighs its gradients alike; the communication hook sums
them. Weighing the loss costs nothing, where weighing every bucket would be one more pass over all gradients; and what
batch norms exchange on the way back is weighted too. PyTorch's own DDP averages, which is wrong by as much as the
shares differ.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from typing import Any

from sonda.frameworks.torch.parallel.all_reduce import Adding
from sonda.frameworks.torch.parallel.group import Group, Waiting, unseen


class Summing:
    """DDP's communication hook: sums buckets over ranks while backward goes on, then waits for what is not there yet.

    The wait is metered, and so apart from the work of backward.
    """

    def __init__(self, group: Group, waiting: Waiting = nullcontext) -> None:
        self.group = group
        self.waiting = waiting
        self._futures: list[Any] = []

    def reduce(self, bucket: Any) -> Any:
        """A bucket is ready; returns the future that will hold its sum."""
        import torch
        import torch.distributed as dist

        if not self._futures:
            # Before DDP's own, which is queued with the last bucket: it then finds everything there.
            torch.autograd.Variable._execution_engine.queue_callback(self._wait)
        with unseen():
            work = dist.all_reduce(bucket.buffer(), group=self.group.gradients, async_op=True)
        future = work.get_future().then(lambda done: done.value()[0])
        self._futures.append(future)
        return future

    def _wait(self) -> None:
        futures, self._futures = self._futures, []
        with self.waiting(), self.group.meter.measured():
            for future in futures:
                future.wait()


def distribute(
    model: Any,
    group: Group,
    device: str,
    waiting: Waiting = nullcontext,
    shares: Callable[[], Sequence[float]] | None = None,
    deterministic: bool = False,
) -> Any:
    """The model with summed gradients: under DDP, or as it is where the group exchanges through memory.

    There ranks divide the work of summing by `shares()`, those in force. All ranks begin with the weights and buffers
    of the first. Buffers are not broadcast later: shared batch norms keep theirs equal. `deterministic`: every step
    sums in the same order, the first one after a checkpoint too.
    """
    if group.memory is not None:
        _begin_alike(model, group)
        Adding(model, group, group.memory, waiting, shares)
        return model
    from torch.nn.parallel import DistributedDataParallel

    index = [int(device.partition(":")[2] or 0)] if device.startswith("cuda") else None
    # Newer versions of PyTorch have another name for it, and the old one warns there.
    known = inspect.signature(DistributedDataParallel.__init__).parameters
    syncing = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
    wrapped = DistributedDataParallel(
        model,
        device_ids=index,
        process_group=group.gradients,
        gradient_as_bucket_view=True,
        # Else buckets are made anew after the first step. Three ranks or more add up in an order that depends on where
        # in a bucket a gradient lies, and two numbers have one sum.
        find_unused_parameters=deterministic and group.size > 2,
        **{syncing: False},
    )
    summing = Summing(group, waiting)
    wrapped.register_comm_hook(None, lambda _state, bucket: summing.reduce(bucket))
    return wrapped


def _begin_alike(model: Any, group: Group) -> None:
    spread((*model.parameters(), *model.buffers()), group, 0)


def spread(tensors: Iterable[Any], group: Group, place: int) -> None:
    """Give every rank of a group the values that the one at this place has."""
    import torch
    import torch.distributed as dist

    with torch.no_grad(), unseen():
        for tensor in tensors:
            plain = tensor.detach().contiguous()  # which channels-last weights are not
            dist.broadcast(plain, group.ranks[place], group.gradients)
            tensor.copy_(plain)
