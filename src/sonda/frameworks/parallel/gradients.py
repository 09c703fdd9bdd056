"""Gradients of unequal shares: the mean over the whole batch, exactly, and the time it takes to exchange them.

A rank with n_i of N samples weighs its loss by n_i / N, which weighs its gradients alike; the communication hook sums
them. Weighing the loss costs nothing, where weighing every bucket would be one more pass over all gradients; and what
batch norms exchange on the way back is weighted too. PyTorch's own DDP averages, which is wrong by as much as the
shares differ.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from sonda.frameworks.parallel.group import Group, unseen
from sonda.frameworks.parallel.shared_memory import SharedMemory

Waiting = Callable[[], AbstractContextManager[Any]]
"""Entered while a rank does nothing but wait for gradients."""


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


class Adding:
    """Sums gradients through shared memory: every one is written when backward has it, and all are added at its end.

    Nothing is copied into buckets, and no thread works beside backward. The time that others take is metered; adding up
    is work of this rank.
    """

    def __init__(self, model: Any, group: Group, memory: SharedMemory, waiting: Waiting = nullcontext) -> None:
        self.group, self.memory, self.waiting = group, memory, waiting
        self._written: list[tuple[Any, int, int]] = []
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self._ready)

    def _ready(self, parameter: Any) -> None:
        import torch

        if not self._written:
            torch.autograd.Variable._execution_engine.queue_callback(self._add)
        with unseen():
            self._written.append((parameter, *self.memory.write(parameter.grad.reshape(-1))))

    def _add(self) -> None:
        written, self._written = self._written, []
        with self.waiting(), unseen():
            for parameter, at, number in written:
                flat = parameter.grad.reshape(-1)
                self.memory.add(flat, at, number)
                if not parameter.grad.is_contiguous():  # then it was no view
                    parameter.grad.copy_(flat.view_as(parameter.grad))
            self.memory.step_ends()
        self.group.meter.add(self.memory.take_waited())


def distribute(model: Any, group: Group, device: str, waiting: Waiting = nullcontext) -> Any:
    """The model with summed gradients: under DDP, or as it is where the group exchanges through memory.

    All ranks begin with the weights and buffers of the first. Buffers are not broadcast later: shared batch norms keep
    theirs equal.
    """
    if group.memory is not None:
        _begin_alike(model, group)
        Adding(model, group, group.memory, waiting)
        return model
    from torch.nn.parallel import DistributedDataParallel

    index = [int(device.partition(":")[2] or 0)] if device.startswith("cuda") else None
    wrapped = DistributedDataParallel(
        model,
        device_ids=index,
        process_group=group.gradients,
        forward_sync_buffers=False,
        gradient_as_bucket_view=True,
    )
    summing = Summing(group, waiting)
    wrapped.register_comm_hook(None, lambda _state, bucket: summing.reduce(bucket))
    return wrapped


def _begin_alike(model: Any, group: Group) -> None:
    import torch
    import torch.distributed as dist

    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            plain = tensor.detach().contiguous()  # which channels-last weights are not
            dist.broadcast(plain, group.ranks[0], group.gradients)
            tensor.copy_(plain)
