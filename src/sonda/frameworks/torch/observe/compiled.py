"""Functions that `torch.compile` made: inside them no module is called, so the call of one is a phase as a whole.

One that updates weights is a training step, `fused`; so is one that takes gradients itself (`torch.func.grad`) and
gives them, or weights that are updated with them. Any other is a forward. What it leaves to be run as it is (the code
between two graphs) is seen as everywhere.
"""

from __future__ import annotations

import functools
import sys
from time import perf_counter_ns as now
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from ...collector import PACKAGES
from ...collector.phases import FORWARD, LOSS, NONE
from .values import has_graph, tensors_in

if TYPE_CHECKING:
    from ...collector.recorder import Stream
    from .observer import TorchObserver


class CompiledFunctions:
    """Stands before `torch.compile`, and watches the functions that it gives."""

    def __init__(self, observer: TorchObserver) -> None:
        self.observer = observer
        self._left = False
        """Whether the compiler knows what to leave."""
        self._gradients = 0
        """Gradients that were met in what is compiled; while it runs they are a part of it, and nobody is told."""
        self._learning: set = set()
        """The code of functions that take gradients themselves."""
        define = observer.recorder.define
        self._values = {name: define(kind="value", quantity=name, source="counted") for name in ("graph", "optimizer")}

    def install(self) -> None:
        observer, torch = self.observer, self.observer.torch
        observer.replace(torch, "compile", self.wrap)
        observer.replace(torch.autograd, "grad", self.wrap_gradient)
        observer.replace(torch.autocast, "__enter__", observer.habits.wrap_cast)
        self.leave_own_code()

    def wrap_gradient(self, original: Any) -> Any:
        """`torch.autograd.grad`, which those of `torch.func` come to: whether it is called while compiling."""
        compiling = self.observer.torch.compiler.is_compiling

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if compiling():
                self._gradients += 1
            return original(*args, **kwargs)

        return wrapper

    def wrap(self, original: Any) -> Any:
        module_type = self.observer.torch.nn.Module

        def compile(model: Any = None, *args: Any, **kwargs: Any) -> Any:
            result = original(model, *args, **kwargs)
            self.leave_own_code()
            # A compiled module is called as any other; without a model this is a decorator, which comes here again.
            if model is None or result is model or isinstance(result, (module_type, type)) or not callable(result):
                return result
            return self._watch(result)

        return compile

    def leave_own_code(self) -> None:
        """Have the compiler leave the collector's functions as they are.

        Between two graphs it would compile whatever runs, ours too. What it takes into a graph stays as it is.
        """
        evaluation = sys.modules.get("torch._dynamo.eval_frame")
        skip = getattr(evaluation, "skip_code", None)
        if self._left or skip is None:
            return
        self._left = True
        for name, module in list(sys.modules.items()):
            if name.startswith(PACKAGES):
                for code in _codes(vars(module).values()):
                    skip(code)

    def _watch(self, function: Any) -> Any:
        observer = self.observer
        compiling = observer.torch.compiler.is_compiling

        @functools.wraps(function)
        def watched(*args: Any, **kwargs: Any) -> Any:
            if compiling():
                return function(*args, **kwargs)
            stream = observer.current_stream()
            if stream is None or stream.layers or stream.phases:
                return self._run(function, args, kwargs)
            return self._call(stream, function, args, kwargs)

        return watched

    def _run(self, function: Any, args: tuple, kwargs: dict) -> Any:
        """What the function returns; where it is compiled in this call, whether it takes gradients is kept."""
        gradients = self._gradients
        result = function(*args, **kwargs)
        if self._gradients != gradients:
            self._learning.add(_code_of(function))
        return result

    def _graph(self, result: Any, args: tuple, kwargs: dict) -> int:
        torch = self.observer.torch
        if not torch.is_grad_enabled() or not has_graph(torch, result):
            return NONE
        with torch._C.DisableTorchFunctionSubclass():  # a subclass must not see us look
            given = any(tensor.grad_fn is not None for tensor in tensors_in(torch, (args, kwargs)))
        return LOSS if given and isinstance(result, torch.Tensor) and result.dim() == 0 else FORWARD

    def _call(self, stream: Stream, function: Any, args: tuple, kwargs: dict) -> Any:
        observer = self.observer
        schedule, code = stream.schedule, observer.phases.codes["fused"]
        optimizers = observer.optimizers
        optimizers.close_abandoned(stream)
        if stream.updating:
            optimizers.end_update(stream)
        before, steps = optimizers.weight_versions(), schedule.steps
        observer.open(stream, code)
        updated = False
        try:
            result = self._run(function, args, kwargs)
            graph = self._graph(result, args, kwargs)
            learned = graph == NONE and _code_of(function) in self._learning
            # An optimizer that stepped between two graphs has said so itself.
            updated = schedule.steps == steps and (learned or optimizers.weight_versions() != before)
            about = (self._values["optimizer"], -1) if updated else (self._values["graph"], graph)
            stream.push((*about, *observer.evaluating.said()))
        finally:
            observer.close(stream, code)
        if updated:
            counted = observer.counter.stream is stream
            schedule.end_optimizer_step(-1, now(), observer.recorder.written, frozenset({-1}), counted)
        elif graph == NONE:
            schedule.end_forward(False, now(), observer.recorder.written)
        observer.follow_schedule(stream)
        if graph != LOSS:
            observer.habits.notice_function(function, args, kwargs, updated or graph == FORWARD)
        return result


def _code_of(function: Any) -> Any:
    """The code that was compiled, which is the same each time that `torch.compile` is called for it."""
    original = getattr(function, "_torchdynamo_orig_callable", function)
    return getattr(original, "__code__", original)


def _codes(things: Any) -> list:
    """The code of functions, of the methods of classes, and of all functions inside them."""
    found, waiting = [], list(things)
    while waiting:
        thing = waiting.pop()
        if isinstance(thing, CodeType):
            found.append(thing)
            waiting.extend(constant for constant in thing.co_consts if isinstance(constant, CodeType))
        elif isinstance(thing, FunctionType) and str(thing.__module__).startswith(PACKAGES):
            waiting.append(thing.__code__)
        elif isinstance(thing, type) and thing.__module__.startswith(PACKAGES):
            waiting.extend(vars(thing).values())
        elif isinstance(thing, (staticmethod, classmethod)):
            waiting.append(thing.__func__)
        elif isinstance(thing, property) and thing.fget is not None:
            waiting.append(thing.fget)
    return found
