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
        self._pieces: list[tuple[Any, int, int]] = []

    def reduce(self, bucket: Any) -> Any:
        """A bucket is ready; returns the future that will hold its sum."""
        import torch
        import torch.distributed as dist

        if not self._futures:
            # Before DDP's own, which is queued with the last bucket: it then finds everything there.
            torch.autograd.Variable._execution_engine.queue_callback(self._wait)
        if self.group.memory is not None:
            with unseen():
                self._pieces.append((bucket.buffer(), *self.group.memory.write(bucket.buffer())))
            self._futures.append(torch.futures.Future())
            return self._futures[-1]
        with unseen():
            work = dist.all_reduce(bucket.buffer(), group=self.group.gradients, async_op=True)
        future = work.get_future().then(lambda done: done.value()[0])
        self._futures.append(future)
        return future

    def _wait(self) -> None:
        futures, self._futures = self._futures, []
        if self.group.memory is not None:
            self._add(futures)
            return
        with self.waiting(), self.group.meter.measured():
            for future in futures:
                future.wait()

    def _add(self, futures: list[Any]) -> None:
        """Take what the others have written. Adding it up is work; only the wait for it is metered."""
        memory = self.group.memory
        assert memory is not None
        pieces, self._pieces = self._pieces, []
        with self.waiting(), unseen():
            for future, (values, at, number) in zip(futures, pieces, strict=True):
                memory.add(values, at, number)
                future.set_result(values)
            memory.step_ends()
        self.group.meter.add(memory.take_waited())


def distribute(model: Any, group: Group, device: str, waiting: Waiting = nullcontext) -> Any:
    """The model under DDP with summed gradients. All ranks begin with the weights and buffers of the first.

    Buffers are not broadcast later: shared batch norms keep theirs equal.
    """
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
