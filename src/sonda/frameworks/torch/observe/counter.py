"""The counter: every operation of one step, with its FLOPs, its bytes and the tensors alive at that moment."""

from __future__ import annotations

import sys
from time import perf_counter_ns as now
from typing import Any

from ...collector.recorder import Recorder, Stream
from .dispatch import Kernels
from .formulas.cost import cost
from .memory import LiveTensors
from .mode_exceptions import FORWARD_MODE, Hiding, in_forward_mode
from .values import tensors_in

MOST_OPERATIONS = 1_000_000
LONGEST_NS = 10_000_000_000
"""What counting may take in all steps of an observed program together: operations, and ns of its own. A step that would
take more has no count."""
AROUND_NS = 50_000
"""PyTorch makes Python's arguments of its own before it calls a mode, and unmakes them to run the operation: no clock
of ours sees how long. Of the time between two operations, and of each operation's, so much is taken for that at most;
the rest is the program's. Without it, a third of what counting takes is not booked."""


class Counter:
    """While `active`, `mode(stream)` is a context in which PyTorch hands every operation to the recorder, once.

    One thread counts at a time: the one whose stream started it.
    """

    def __init__(self, torch: Any, recorder: Recorder) -> None:
        self.torch = torch
        self.recorder = recorder
        self.active = False
        self.stream: Stream | None = None
        """The stream of the thread that counts."""
        self.memory = LiveTensors()
        self._pass = recorder.define(kind="pass", name="count")
        self._peak = recorder.define(kind="value", quantity="peak_memory", source="counted")
        self._depth = 0
        self._held: dict = {}
        self.spent = False
        """Whether counting has taken all that it may."""
        self._limited = False
        self._operations = 0
        self._spent_ns = 0
        self._left = 0
        """When counting last gave the program its thread back, ns."""
        self.hiding = Hiding(torch)
        self.kernels = Kernels(torch)
        self._mode_class = _mode_class(torch)

    def start(self, stream: Stream, tensors: Any, limited: bool = False) -> None:
        """Begin counting; `tensors` exist already and belong to the model. `limited`: it may not take for ever."""
        begun = now()
        self._limited = limited
        self.active = True
        self.stream = stream
        self.memory = LiveTensors()
        self.memory.adopt(tensors)
        self.kernels = Kernels(self.torch)  # a program may register kernels of its own between two steps
        self._spend(now() - begun)
        stream.push((self._pass, now()))

    def stop(self, stream: Stream) -> None:
        self.active = False
        self.stream = None
        stream.push((self._pass + 1, now()))
        self.memory = LiveTensors()

    def is_free(self) -> bool:
        """Whether another thread may count: none does, or one that is gone or only waits for a text to go on."""
        other = self.stream
        if other is not None and other.schedule is not None:
            waits = not other.phases and other.schedule.is_waiting
            if waits or other.ident not in sys._current_frames():
                other.schedule.counting = False
                self.stop(other)
        return not self.active

    def mode(self, stream: Stream) -> Any:
        """The context in which operations are seen; None where this thread does not count, or is in it."""
        if self.stream is not stream or self._depth or self.spent:
            return None
        if in_forward_mode(self.torch):
            at = now()
            self.seen(FORWARD_MODE, (), {}, (), at, at)
            return None
        return self._mode_class(self)

    def backward_begins(self, args: tuple, kwargs: dict) -> list:
        """A backward is about to be called with these arguments; what is returned is to be removed after it."""
        if self.stream is None or self.spent:
            return []
        try:
            return self.hiding.hook(args[0] if args else kwargs.get("tensors", kwargs.get("outputs")))
        except Exception:  # roots of somebody else's making
            return []

    def phase_begins(self, stream: Stream) -> None:
        if self.stream is stream:
            self.memory.reset_peak()

    def phase_ends(self, stream: Stream) -> None:
        """Called while the phase is still open."""
        if self.stream is stream:
            stream.push((self._peak, self.memory.peak))

    def forward_begins(self, stream: Stream, module: Any, given: Any) -> None:
        """A module that no other module called is about to run: its weights and what it is given exist already."""
        if self.stream is stream:
            begun = now()
            self.memory.adopt([*module.parameters(), *module.buffers(), *given])
            self._held = self.memory.held_by_owner()
            self._spend(now() - begun)

    def forward_ends(self, stream: Stream) -> None:
        """What each layer's forward took and still holds is its activations."""
        if self.stream is not stream:
            return
        begun = now()
        held = self.memory.held_by_owner()
        activations = {owner: size - self._held.get(owner, 0) for owner, size in held.items() if isinstance(owner, int)}
        self.recorder.state(activations={owner: size for owner, size in activations.items() if size > 0}, at=now())
        self._spend(now() - begun)

    def enter(self, begin: int) -> int:
        """PyTorch hands over an operation at `begin`; returns that, to be booked with what is done with it."""
        self._spend(min(begin - self._left, AROUND_NS))
        return begin

    def leave(self, spent: int) -> None:
        """The program goes on, after so many ns of counting."""
        self._spend(spent)
        self._left = now()

    def _spend(self, ns: int) -> None:
        """Counting took so long. At its limit it ends, with what was seen last."""
        if not self._limited or self.spent:
            return
        self._spent_ns += ns
        if self._operations >= MOST_OPERATIONS or self._spent_ns >= LONGEST_NS:
            self.spent = True
            self.recorder.state(uncounted_from=now())

    def seen(self, func: Any, args: tuple, kwargs: dict, out: Any, begin: int, end: int) -> None:
        """An operation ran from `begin` to `end`."""
        stream = self.stream
        if stream is None or self.recorder.off or self.spent:
            return
        mine = self.recorder.mine.stream
        if mine is not None and mine.engine:
            # Autograd runs the backward of a GPU in a thread of its own, where its layers are recorded too.
            stream = mine
        name = str(getattr(func, "_overloadpacket", func))
        try:
            flops, size, known = cost(name, args, kwargs, out)
        except Exception:  # an operation of somebody else's making, called as no formula expects
            flops, size, known = None, None, False
        tensors = tensors_in(self.torch, args)
        code = self.recorder.define(
            kind="op",
            name=name,
            flops=flops,
            bytes=size,
            known=known,
            dtype=str(tensors[0].dtype).rpartition(".")[2] if tensors else "",
        )
        stream.push((code, begin, code + 1, end))
        owner = stream.layers[-1] if stream.layers else "phase"
        for tensor in tensors_in(self.torch, out):
            self.memory.see(tensor, owner)
        self._operations += self._limited


def _mode_class(torch: Any) -> Any:
    """The mode, made once PyTorch is there."""
    from torch.utils._python_dispatch import TorchDispatchMode

    def dispatch(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        counter = self.counter
        entered = counter.enter(now())
        kwargs = kwargs or {}
        composite = self.kernels.composite_of(func, args, kwargs)
        if composite is not None:
            counter.leave(now() - entered)
            return self.kernels.take_apart(self, composite, func, args, kwargs)
        begin = now()
        out = self.kernels.run_whole(func, args, kwargs)
        end = now()
        counter.seen(func, args, kwargs, out, begin, end)
        counter.leave(begin - entered + min(end - begin, AROUND_NS) + now() - end)
        return out

    class CountingMode(TorchDispatchMode):
        supports_higher_order_operators = True
        __torch_dispatch__ = dispatch

        @classmethod
        def ignore_compile_internals(cls) -> bool:
            # What is compiled stays compiled: it is seen as the operations that it was compiled to.
            return True

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            # Would import the compiler into programs that do not use it; see __enter__.
            return False

        def __init__(self, counter: Counter) -> None:
            super().__init__()
            self.counter = counter
            self.hiding = counter.hiding
            self.kernels = counter.kernels

        def __enter__(self) -> Any:
            begun = now()
            compiler = sys.modules.get("torch._dynamo")
            if compiler is not None and type(self).__torch_dispatch__ is dispatch:
                type(self).__torch_dispatch__ = compiler.disable(dispatch)
            self.counter._depth += 1
            if self.counter._depth == 1:
                self.hiding.begin()
            result = super().__enter__()
            self.counter.leave(now() - begun)
            return result

        def __exit__(self, *failure: Any) -> Any:
            begun = now()
            self.counter._depth -= 1
            if not self.counter._depth:
                self.hiding.level_ends()
                self.hiding.end()
            result = super().__exit__(*failure)
            self.counter.leave(now() - begun)
            return result

    return CountingMode
