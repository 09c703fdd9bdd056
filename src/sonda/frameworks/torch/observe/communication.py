"""Communication between ranks, and how long they wait for each other.

Outside of every phase, communication is a phase of its own, `communicate`. Inside of a phase or layer it is a number,
the `communication` of that span. Observed are calls of `torch.distributed`, the wait for asynchronous calls, and the
end of a backward under DistributedDataParallel: from the moment when this rank has all its own gradients to the moment
when those of all ranks have arrived. Communication that overlaps with backward is not told apart. Collectives of a GPU
run later, as kernels, and are not seen here either.
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
    """Wraps PyTorch's functions that communicate. `observes_calls` is False where the program itself reports what it
    exchanges."""

    def __init__(self, observer: Any) -> None:
        self.observer, self.torch = observer, observer.torch
        self.observes_calls = True
        recorder = observer.recorder
        self.code = recorder.define(kind="phase", name="communicate")
        self.value = recorder.define(kind="value", quantity="communication", source="measured", sums=True)
        self._inside = threading.local()

    def install(self) -> None:
        distributed = getattr(self.torch, "distributed", None)
        if not self.observes_calls or distributed is None or not distributed.is_available():
            return
        replace = self.observer.replace
        for name in CALLS:
            for owner in (distributed.distributed_c10d, distributed):
                if hasattr(owner, name):
                    replace(owner, name, self._wrap_call)
        replace(distributed.distributed_c10d, "init_process_group", self._wrap_init)
        replace(distributed, "init_process_group", self._wrap_init)
        replace(self.torch._C._distributed_c10d.Work, "wait", self._wrap_call)
        replace(self.torch.nn.parallel.DistributedDataParallel, "forward", self._wrap_forward)

    def begin_in_child(self) -> None:
        """In a forked child: no call is under way here."""
        self._inside.call = False

    def record_exchange(self, stream: Stream, nanoseconds: int) -> None:
        """Record ns of exchanging for the open span; nothing inside of a `communicate` phase."""
        if stream.phases and stream.phases[-1][0] != self.code:
            stream.push((self.value, nanoseconds))

    def waiting_phase(self, stream: Stream) -> Any:
        """A phase for the time in which this rank only exchanges; it belongs to no layer."""
        self.observer.layers.end_backward(stream, 0)
        return self.observer.phase(stream, self.code)

    def _wrap_init(self, original: Any) -> Any:
        """Record the rank that the program gives itself: the environment may not have it."""
        recorder = self.observer.recorder

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            with suppress(RuntimeError, ValueError):  # a third-party backend may not know it
                recorder.rank = self.torch.distributed.get_rank()
                recorder.state(rank=recorder.rank)
            return result

        return wrapper

    # ---- calls of the program's own ---------------------------------------------------------------------------

    def _wrap_call(self, original: Any) -> Any:
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
                    self.record_exchange(stream, now() - begin)
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
            nodes = (tensor.grad_fn for tensor in tensors_in(torch, result))
            node = next((node for node in nodes if node is not None), None)
            if node is not None:
                node.register_prehook(self._backward_begins)
            return result

        return wrapper

    def _backward_begins(self, *_gradients: Any) -> None:
        """Queue a callback for the end of backward, before DDP queues its own with the last gradient."""
        self.torch.autograd.Variable._execution_engine.queue_callback(self._gradients_computed)

    def _gradients_computed(self) -> None:
        """Open a `communicate` phase: the rest of this backward is waiting. The end of backward closes it too."""
        stream = self.observer.current_stream(engine=True)
        backward = self.observer.phases.codes["backward"]
        if stream is None or stream.engine or not stream.phases or stream.phases[-1][0] != backward:
            return
        self.observer.layers.end_backward(stream, 0)
        self.observer.open(stream, self.code)
