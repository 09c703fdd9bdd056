"""The counter: every operation of one step, with its FLOPs, its bytes and the tensors alive at that moment."""

from __future__ import annotations

from _thread import get_ident
from contextlib import nullcontext
from time import perf_counter_ns as now

from .formulas import cost
from .memory import LiveTensors
from .recorder import Recorder, Stream


class Counter:
    """While `active`, `mode()` is a context in which PyTorch hands every operation to the recorder, once."""

    def __init__(self, torch, recorder: Recorder) -> None:
        self.torch = torch
        self.recorder = recorder
        self.active = False
        self.memory = LiveTensors()
        self._pass = recorder.define(kind="pass", name="count")
        self._peak = recorder.define(kind="value", quantity="peak_memory", source="counted")
        self._inside: set = set()
        self._held: dict = {}
        self._mode_class = _mode_class(torch)

    def start(self, stream: Stream, tensors) -> None:
        """Begin counting; `tensors` exist already and belong to the model."""
        self.active = True
        self.memory = LiveTensors()
        self.memory.adopt(tensors)
        stream.push((self._pass, now()))

    def stop(self, stream: Stream) -> None:
        self.active = False
        stream.push((self._pass + 1, now()))
        self.memory = LiveTensors()

    def mode(self):
        """The context in which operations are seen; does nothing when counting is off or already in it."""
        if not self.active or get_ident() in self._inside:
            return nullcontext()
        return self._mode_class(self)

    def phase_begins(self) -> None:
        if self.active:
            self.memory.reset_peak()

    def phase_ends(self, stream: Stream) -> None:
        """Called while the phase is still open."""
        if self.active:
            stream.push((self._peak, self.memory.peak))

    def forward_begins(self) -> None:
        if self.active:
            self._held = self.memory.held_by_owner()

    def forward_ends(self) -> None:
        """What each layer's forward took and still holds is its activations."""
        if not self.active:
            return
        held = self.memory.held_by_owner()
        activations = {
            owner: size - self._held.get(owner, 0) for owner, size in held.items() if isinstance(owner, int)
        }
        self.recorder.state(activations={owner: size for owner, size in activations.items() if size > 0}, at=now())

    def seen(self, func, args: tuple, kwargs: dict, out, begin: int, end: int) -> None:
        """An operation ran from `begin` to `end`."""
        stream = self.recorder.stream()
        name = str(func._overloadpacket)
        flops, size, known = cost(name, args, kwargs, out)
        tensors = self._tensors(args)
        code = self.recorder.define(
            kind="op",
            name=name,
            flops=flops,
            bytes=size,
            known=known,
            shapes=[list(tensor.shape) for tensor in tensors[:6]],
            dtype=str(tensors[0].dtype).rpartition(".")[2] if tensors else "",
        )
        stream.push((code, begin, code + 1, end))
        owner = stream.layers[-1] if stream.layers else "phase"
        for tensor in self._tensors(out):
            self.memory.see(tensor, owner)

    def _tensors(self, value) -> list:
        if isinstance(value, self.torch.Tensor):
            return [value]
        if isinstance(value, (list, tuple)):
            return [tensor for item in value for tensor in self._tensors(item)]
        return []


def _mode_class(torch):
    """The mode, made once PyTorch is there."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class CountingMode(TorchDispatchMode):
        def __init__(self, counter: Counter) -> None:
            super().__init__()
            self.counter = counter

        def __enter__(self):
            self.counter._inside.add(get_ident())
            return super().__enter__()

        def __exit__(self, *failure):
            self.counter._inside.discard(get_ident())
            return super().__exit__(*failure)

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"):
                # Under inference_mode a composite operation arrives whole; this is the kernel it would run anyway.
                with self:
                    return func._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)
            begin = now()
            out = func(*args, **kwargs)
            self.counter.seen(func, args, kwargs, out, begin, now())
            return out

    return CountingMode
