"""Gradients of unequal shares: their exact mean over the whole batch, and the time to exchange them.

A rank with n_i of N samples multiplies its loss by n_i / N, which weights its gradients too. The communication hook
sums them. Weighting the loss costs nothing; weighting every bucket would be one more pass over all gradients. It also
weights what batch norms exchange in backward. PyTorch's own DDP averages over ranks, which is wrong for unequal shares.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from typing import Any

from sonda.frameworks.torch.parallel.all_reduce import GradientAdder
from sonda.frameworks.torch.parallel.group import Communicator, Waiting, hide_from_counter


class SummingHook:
    """DDP's communication hook: sums buckets over ranks while backward runs, then waits for the sums still missing.

    The wait is metered, so it is told apart from the work of backward.
    """

    def __init__(self, group: Communicator, waiting: Waiting = nullcontext) -> None:
        self.group = group
        self.waiting = waiting
        self._futures: list[Any] = []

    def reduce(self, bucket: Any) -> Any:
        """Begin to sum a bucket that is ready. Returns the future of its sum."""
        import torch
        import torch.distributed as dist

        if not self._futures:
            # Runs before DDP's own callback, which is queued with the last bucket and then has nothing to wait for.
            torch.autograd.Variable._execution_engine.queue_callback(self._wait)
        with hide_from_counter():
            work = dist.all_reduce(bucket.buffer(), group=self.group.gradients, async_op=True)
        future = work.get_future().then(lambda done: done.value()[0])
        self._futures.append(future)
        return future

    def _wait(self) -> None:
        futures, self._futures = self._futures, []
        with self.waiting(), self.group.meter.measure():
            for future in futures:
                future.wait()


def distribute(
    model: Any,
    group: Communicator,
    device: str,
    waiting: Waiting = nullcontext,
    shares: Callable[[], Sequence[float]] | None = None,
    deterministic: bool = False,
) -> Any:
    """A model whose gradients are summed over ranks: under DDP, or itself where the group exchanges through memory.

    Through memory, ranks divide the work of summing by `shares()`, the shares in force. All ranks begin with the
    weights and buffers of the first. Buffers are not broadcast later: shared batch norms keep theirs equal.
    `deterministic` makes every step sum in the same order, the first step after a checkpoint too.
    """
    if group.memory is not None:
        _broadcast_state(model, group)
        GradientAdder(model, group, group.memory, waiting, shares)
        return model
    from torch.nn.parallel import DistributedDataParallel

    index = [int(device.partition(":")[2] or 0)] if device.startswith("cuda") else None
    # Newer versions of PyTorch renamed this option, and warn of the old name.
    known = inspect.signature(DistributedDataParallel.__init__).parameters
    syncing = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
    wrapped = DistributedDataParallel(
        model,
        device_ids=index,
        process_group=group.gradients,
        gradient_as_bucket_view=True,
        # Otherwise DDP rebuilds its buckets after the first step. With three ranks or more the order of a sum depends
        # on a gradient's position in its bucket; a sum of two does not depend on their order.
        find_unused_parameters=deterministic and group.size > 2,
        **{syncing: False},
    )
    summing = SummingHook(group, waiting)
    wrapped.register_comm_hook(None, lambda _state, bucket: summing.reduce(bucket))
    return wrapped


def _broadcast_state(model: Any, group: Communicator) -> None:
    broadcast_tensors((*model.parameters(), *model.buffers()), group, 0)


def broadcast_tensors(tensors: Iterable[Any], group: Communicator, place: int) -> None:
    """Copy the values of the rank at position `place` to every rank of the group, in place."""
    import torch
    import torch.distributed as dist

    with torch.no_grad(), hide_from_counter():
        for tensor in tensors:
            plain = tensor.detach().contiguous()  # which channels-last weights are not
            dist.broadcast(plain, group.ranks[place], group.gradients)
            tensor.copy_(plain)
