"""What ranks exchange, and how long they wait for each other.

Where no other phase is open that is a phase of its own, `communicate`. Inside of another one it is a number, the
`communication` of the span that is open: a phase or a layer. Seen are calls of `torch.distributed`, the wait for what
was begun without waiting, and the end of a backward under DistributedDataParallel: from the moment when this rank has
all its own gradients to the moment when those of all ranks are there. What overlaps with backward is not seen apart,
and neither is what a GPU does later: its collectives are kernels.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from time import perf_counter_ns as now
from typing import Any

from ...collector.recorder import Stream
from .values import tensors_in

CALLS = (
    "all_gather", "all_gather_into_tensor", "all_gather_object", "all_reduce", "all_to_all", "all_to_all_single",
    "barrier", "broadcast", "broadcast_object_list", "gather", "gather_object", "monitored_barrier", "recv", "reduce",
    "reduce_scatter", "reduce_scatter_tensor", "scatter", "scatter_object_list", "send",
)  # fmt: skip


class Communication:
    """Stands before PyTorch's functions that communicate. `seen` is off where the program itself tells what it
    exchanges."""

    def __init__(self, observer: Any) -> None:
        self.observer, self.torch = observer, observer.torch
        self.seen = True
        recorder = observer.recorder
        self.code = recorder.define(kind="phase", name="communicate")
        self.value = recorder.define(kind="value", quantity="communication", source="measured", sums=True)
        self._inside = threading.local()

    def install(self) -> None:
        distributed = getattr(self.torch, "distributed", None)
        if not self.seen or distributed is None or not distributed.is_available():
            return
        replace = self.observer.replace
        for name in CALLS:
            for owner in (distributed.distributed_c10d, distributed):
                if hasattr(owner, name):
                    replace(owner, name, self._wrap)
        replace(distributed.distributed_c10d, "init_process_group", self._wrap_beginning)
        replace(distributed, "init_process_group", self._wrap_beginning)
        replace(self.torch._C._distributed_c10d.Work, "wait", self._wrap)
        replace(self.torch.nn.parallel.DistributedDataParallel, "forward", self._wrap_forward)

    def begin_in_child(self) -> None:
        """In a forked child: no call is under way here."""
        self._inside.call = False

    def exchanged(self, stream: Stream, nanoseconds: int) -> None:
        """So much of what is open went into exchanging; nothing is said where all of it does."""
        if stream.phases and stream.phases[-1][0] != self.code:
            stream.push((self.value, nanoseconds))

    def waiting(self, stream: Stream) -> Any:
        """A phase for the time in which this rank does nothing but exchange; it belongs to no layer."""
        self.observer.layers.end_backward(stream, 0)
        return self.observer.phase(stream, self.code)

    def _wrap_beginning(self, original: Any) -> Any:
        """Note the rank that the program gives itself: the environment need not have it."""
        recorder = self.observer.recorder

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            with suppress(RuntimeError, ValueError):  # somebody else's group may not know
                recorder.rank = self.torch.distributed.get_rank()
                recorder.state(rank=recorder.rank)
            return result

        return wrapper

    # ---- calls of the program's own ---------------------------------------------------------------------------

    def _wrap(self, original: Any) -> Any:
        compiling = self.torch.compiler.is_compiling
        inside = self._inside

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if compiling() or getattr(inside, "call", False):
                return original(*args, **kwargs)
            stream = self.observer.current_stream()
            if stream is None:
                return original(*args, **kwargs)
            inside.call = True
            try:
                if not stream.phases:
                    with self.observer.phase(stream, self.code):
                        return original(*args, **kwargs)
                begin = now()
                try:
                    return original(*args, **kwargs)
                finally:
                    self.exchanged(stream, now() - begin)
            finally:
                inside.call = False

        return wrapper

    # ---- gradients that DistributedDataParallel exchanges ------------------------------------------------------

    def _wrap_forward(self, original: Any) -> Any:
        torch = self.torch

        def wrapper(module: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(module, *args, **kwargs)
            if torch.compiler.is_compiling() or not torch.is_grad_enabled() or not module.require_backward_grad_sync:
                return result
            made = next((one.grad_fn for one in tensors_in(torch, result) if one.grad_fn is not None), None)
            if made is not None:
                made.register_prehook(self._backward_begins)
            return result

        return wrapper

    def _backward_begins(self, *_gradients: Any) -> None:
        """Ask to be called when all gradients are computed, before DDP is: it asks with its last gradient."""
        self.torch.autograd.Variable._execution_engine.queue_callback(self._computed)

    def _computed(self) -> None:
        """What is left of this backward is waiting for others; whoever opened it closes this too."""
        stream = self.observer.current_stream(engine=True)
        backward = self.observer.phases.codes["backward"]
        if stream is None or stream.engine or not stream.phases or stream.phases[-1][0] != backward:
            return
        self.observer.layers.end_backward(stream, 0)
        self.observer.open(stream, self.code)
