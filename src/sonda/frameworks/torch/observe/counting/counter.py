"""Counts every operation of one step, with its FLOPs, its bytes and the tensors alive at that moment."""

from __future__ import annotations

import sys
import threading
from time import perf_counter_ns as now
from typing import Any

from ....collector.recorder import Recorder, Stream
from ..formulas.cost import cost
from ..inspection.code_places import CodePlaces
from ..inspection.step_inspection import StepInspection
from ..values import tensors_in
from .call_costs import CallCosts, CallKind
from .dispatch import OperatorKernels
from .memory import LiveTensors
from .mode_exceptions import FORWARD_MODE, ModeHider, in_forward_mode
from .operation_groups import add_mapped, count_time_steps, describe_group

MOST_OPERATIONS = 1_000_000
LONGEST_NS = 10_000_000_000
"""Limits of counting over all steps of an observed program together: operations, and time that counting takes itself. A
step that would exceed them has no count."""
DISPATCH_NS = 50_000
"""Most time booked for PyTorch's own work around a mode, ns. PyTorch converts its arguments to Python before it calls a
mode, and back to run the operation, which no clock here sees. So much of the time between two operations, and of each
operation, is booked as counting at most; the rest is the program's. Without it a third of the cost is not booked."""


class OperationCounter:
    """While `active`, `mode(stream)` is a context in which PyTorch hands every operation to the recorder, once.

    One thread counts at a time: the thread of the stream with which counting was started.
    """

    def __init__(self, torch: Any, recorder: Recorder, layer_codes: dict | None = None) -> None:
        """`layer_codes`: the code of each module's forward, by the module's identity."""
        self.torch = torch
        self.recorder = recorder
        self.layer_codes = layer_codes if layer_codes is not None else {}
        self._places = CodePlaces(torch)
        self.inspection: StepInspection | None = None
        """Of the step that is counted."""
        self.optimized: Any = lambda: None
        """Gives the identities of the weights of all optimizers; None where some may be unknown."""
        self._between: Any = None
        """The mode that is on between two phases; `_between_thread` is the thread in which it is."""
        self._between_thread = 0
        self.ending: Stream | None = None
        """The stream of a step that was counted, until its next phase: what follows the step is inspected too."""
        self.active = False
        self.stream: Stream | None = None
        """The stream of the thread that counts."""
        self.memory = LiveTensors()
        self._pass = recorder.define(kind="pass", name="count")
        self._peak = recorder.define(kind="value", quantity="peak_memory", source="counted")
        self._depth = 0
        self._bytes_before: dict = {}
        self.exhausted = False
        """Whether counting has reached its limits."""
        self._limited = False
        self._operations = 0
        self._spent_ns = 0
        self._resumed = 0
        """When counting last returned to the program, ns."""
        self._costs = CallCosts(torch, self._describe_call)
        self.mode_hider = ModeHider(torch)
        self.kernels = OperatorKernels(torch)
        self._mode_class = _make_mode_class()

    def start(self, stream: Stream, tensors: Any, limited: bool = False) -> None:
        """Begin counting. `tensors` exist already and belong to the model. `limited`: the limits above apply."""
        begun = now()
        if self.ending is not None:
            self.end_inspection()  # of the step before, which was counted too
        self._limited = limited
        self.active = True
        self.stream = stream
        self.inspection = StepInspection(self.torch, self._places, self.layer_codes)
        stream.inspected = True
        self.memory = LiveTensors()
        self.memory.adopt(tensors)
        self.kernels = OperatorKernels(self.torch)  # a program may register kernels of its own between two steps
        self._spend(now() - begun)
        stream.push((self._pass, now()))

    def stop(self, stream: Stream, follows: bool = False) -> None:
        """End counting. `follows`: what the program does until its next phase belongs to the step, too."""
        self.active = False
        self.stream = None
        stream.inspected = False
        stream.push((self._pass + 1, now()))
        self.memory = LiveTensors()
        self.ending = stream
        if follows:
            self.between_begins(stream)
        if self._between is None or not follows:
            self.end_inspection()

    def end_inspection(self) -> None:
        """State what the inspection of the counted step has shown."""
        self.between_ends()
        stream, self.ending = self.ending, None
        inspection, self.inspection = self.inspection, None
        if inspection is not None and stream is not None and stream.schedule is not None:
            sequence = inspection.operations.sequence
            stream.schedule.note_foretold(sequence.foretold, sequence.calls, sequence.checked, sequence.wrong)
        if inspection is not None and not self.exhausted:
            self.recorder.state(**inspection.facts(self.optimized()))

    def between_begins(self, stream: Stream) -> None:
        """A phase has ended and no other is open: count the operations that the program calls outside of phases.

        Only where no other mode is on: a mode must be left in the order in which modes were entered.
        """
        if self._between is not None or self._depth or self.exhausted or in_forward_mode(self.torch):
            return
        if self.torch._C._len_torch_dispatch_stack():
            return
        self._between, self._between_thread = self._mode_class(self), stream.ident
        self._between.__enter__()

    def between_ends(self) -> None:
        """Leave the mode of `between_begins`, unless the program has entered a mode of its own since."""
        mode = self._between
        if mode is None:
            return
        if self._between_thread != threading.get_ident():  # the thread has ended, and its modes with it
            self._between, self._depth = None, 0
            return
        height = self.torch._C._len_torch_dispatch_stack()
        if height and self.torch._C._get_dispatch_stack_at(height - 1) is mode:
            self._between = None
            mode.__exit__(None, None, None)

    def is_free(self) -> bool:
        """Whether another thread may count. Counting stops where its thread has ended, or waits for a further forward
        of an inference."""
        stream = self.stream
        if stream is not None and stream.schedule is not None:
            waits = not stream.phases and stream.schedule.is_waiting
            if waits or stream.ident not in sys._current_frames():
                stream.schedule.counting = False
                self.stop(stream)
        return not self.active

    def mode(self, stream: Stream) -> Any:
        """The context in which operations are counted; None where this thread does not count, or is in it already."""
        if self.stream is not stream or self._depth or self.exhausted:
            return None
        if in_forward_mode(self.torch):
            at = now()
            self.record_operation(FORWARD_MODE, (), {}, (), at, at)
            return None
        return self._mode_class(self)

    def backward_begins(self, args: tuple, kwargs: dict) -> list:
        """Prepare for a backward with these arguments. Returns hooks to remove after it."""
        if self.stream is None or self.exhausted:
            return []
        try:
            return self.mode_hider.hook_nodes(args[0] if args else kwargs.get("tensors", kwargs.get("outputs")))
        except Exception:  # roots of a library's own classes
            return []

    def phase_begins(self, stream: Stream) -> None:
        if self.stream is stream:
            self.memory.reset_peak()

    def phase_ends(self, stream: Stream) -> None:
        """Record the phase's peak memory; called while the phase is still open."""
        if self.stream is stream:
            stream.push((self._peak, self.memory.peak))

    def forward_begins(self, stream: Stream, module: Any, inputs: Any) -> None:
        """Adopt the weights and the inputs of an outermost module that is about to run."""
        if self.stream is stream:
            begun = now()
            self.memory.adopt([*module.parameters(), *module.buffers(), *inputs])
            self._bytes_before = self.memory.bytes_by_owner()
            self._spend(now() - begun)

    def forward_ends(self, stream: Stream) -> None:
        """State the activations of each layer: the memory that its forward took and still holds."""
        if self.stream is not stream:
            return
        begun = now()
        after, before = self.memory.bytes_by_owner(), self._bytes_before
        activations = {owner: size - before.get(owner, 0) for owner, size in after.items() if isinstance(owner, int)}
        self.recorder.state(activations={owner: size for owner, size in activations.items() if size > 0}, at=now())
        self._spend(now() - begun)

    def enter(self, begin: int) -> int:
        """Book the time before `begin`, at which PyTorch handed over an operation. Returns `begin`."""
        self._spend(min(begin - self._resumed, DISPATCH_NS))
        return begin

    def leave(self, spent: int) -> None:
        """Book so many ns of counting; the program goes on now."""
        self._spend(spent)
        self._resumed = now()

    def _spend(self, ns: int) -> None:
        """Book ns of counting. At its limit counting ends, after the last operation recorded."""
        if not self._limited or self.exhausted:
            return
        self._spent_ns += ns
        if self._operations >= MOST_OPERATIONS or self._spent_ns >= LONGEST_NS:
            self.exhausted = True
            self.recorder.state(uncounted_from=now())

    def record_operation(self, func: Any, args: tuple, kwargs: dict, out: Any, begin: int, end: int) -> None:
        """Record an operation that ran from `begin` to `end`, and track its results."""
        stream = self.stream or self.ending
        if stream is None or self.recorder.off or self.exhausted:
            return
        mine = self.recorder.mine.stream
        if mine is not None and mine.engine:
            # Autograd runs the backward of a GPU in its own thread, where layers are recorded too.
            stream = mine
        inspection = self.inspection
        kind = inspection.operations.add_foretold(stream, func, end - begin) if inspection is not None else None
        if kind is None:
            kind = self._costs.find(func, args, kwargs, out)
            if inspection is not None:
                inspection.operations.add(stream, kind, (func, args, kwargs, out), end - begin)
        self._operations += self._limited
        if self._between is not None and not stream.phases and not stream.engine:
            return  # outside of phases it is no span
        stream.push((kind.code, begin, kind.code + 1, end))
        owner = stream.layers[-1] if stream.layers else "phase"
        if type(out) is self.torch.Tensor:
            self.memory.track(out, owner)
            return
        for tensor in tensors_in(self.torch, out):
            self.memory.track(tensor, owner)

    def _describe_call(self, func: Any, args: tuple, kwargs: dict, out: Any) -> CallKind:
        """The kind of a call, by its formulas."""
        name = str(getattr(func, "_overloadpacket", func))
        try:
            flops, size, known, executed = cost(name, args, kwargs, out)
        except Exception:  # an operation of a library, called as no formula expects
            flops, size, known, executed = None, None, False, None
        tensors = tensors_in(self.torch, args)
        operands = tensors if name != "aten._to_copy" else [*tensors, *tensors_in(self.torch, out)]
        code = self.recorder.define(
            kind="op",
            name=name,
            flops=flops,
            bytes=size,
            known=known,
            dtype=str(tensors[0].dtype).rpartition(".")[2] if tensors else "",
            **({} if executed is None else {"executed": executed}),
        )
        family, bits, strided, random = describe_group(self.torch, func, name, args, operands, size)
        mapped = add_mapped(self.torch, (args, kwargs), out)
        operations = count_time_steps(name, args)
        return CallKind(code, name, flops, size, family, bits, strided, random, mapped, operations)


def _count_dispatch(mode: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """`__torch_dispatch__` of the counting mode: run the operation as without a mode, and record it."""
    counter = mode.counter
    entered = counter.enter(now())
    kwargs = kwargs or {}
    composite = mode.kernels.find_composite(func, args, kwargs)
    if composite is not None:
        counter.leave(now() - entered)
        return mode.kernels.run_composite(mode, composite, func, args, kwargs)
    begin = now()
    out = mode.kernels.run_whole(func, args, kwargs)
    end = now()
    counter.record_operation(func, args, kwargs, out, begin, end)
    counter.leave(begin - entered + min(end - begin, DISPATCH_NS) + now() - end)
    return out


def _make_mode_class() -> Any:
    """The class of the counting mode; it derives from a class of PyTorch, which must be imported."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class CountingMode(TorchDispatchMode):
        supports_higher_order_operators = True
        __torch_dispatch__ = _count_dispatch

        @classmethod
        def ignore_compile_internals(cls) -> bool:
            # Compiled code stays compiled: the operations that it was compiled to are counted.
            return True

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            # True would import the compiler into programs that do not use it; see __enter__.
            return False

        def __init__(self, counter: OperationCounter) -> None:
            super().__init__()
            self.counter = counter
            self.mode_hider = counter.mode_hider
            self.kernels = counter.kernels

        def __enter__(self) -> Any:
            begun = now()
            compiler = sys.modules.get("torch._dynamo")
            if compiler is not None and type(self).__torch_dispatch__ is _count_dispatch:
                type(self).__torch_dispatch__ = compiler.disable(_count_dispatch)
            self.counter._depth += 1
            if self.counter._depth == 1:
                self.mode_hider.begin()
            result = super().__enter__()
            self.counter.leave(now() - begun)
            return result

        def __exit__(self, *failure: Any) -> Any:
            begun = now()
            self.counter._depth -= 1
            if not self.counter._depth:
                self.mode_hider.end_forward_mode()
                self.mode_hider.end()
            result = super().__exit__(*failure)
            self.counter.leave(now() - begun)
            return result

    return CountingMode
