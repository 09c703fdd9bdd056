"""Functions made by `torch.compile`: they call no module, so a whole call is one phase.

A function that updates weights is a training step, `fused`. So is one that computes gradients itself
(`torch.func.grad`) and returns them, or weights updated with them. Any other function is a forward. Code that it leaves
uncompiled, between two graphs, is observed as usual.
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
    """Wraps `torch.compile`, and observes the functions that it returns."""

    def __init__(self, observer: TorchObserver) -> None:
        self.observer = observer
        self._own_code_skipped = False
        """Whether the compiler was told to skip the collector's functions."""
        self._gradient_count = 0
        """Number of gradient computations seen during compilation. When compiled code runs, they cannot be seen."""
        self._learning_codes: set = set()
        """Code of the functions that compute gradients themselves."""
        define = observer.recorder.define
        self._value_codes = {
            name: define(kind="value", quantity=name, source="counted") for name in ("graph", "optimizer")
        }

    def install(self) -> None:
        observer, torch = self.observer, self.observer.torch
        observer.replace(torch, "compile", self.wrap)
        observer.replace(torch.autograd, "grad", self.wrap_gradient)
        observer.replace(torch.autocast, "__enter__", observer.habits.wrap_cast)
        self.skip_own_code()

    def wrap_gradient(self, original: Any) -> Any:
        """Wrap `torch.autograd.grad`, which `torch.func` calls too, to count its calls during compilation."""
        compiling = self.observer.torch.compiler.is_compiling

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if compiling():
                self._gradient_count += 1
            return original(*args, **kwargs)

        return wrapper

    def wrap(self, original: Any) -> Any:
        module_type = self.observer.torch.nn.Module

        def compile(model: Any = None, *args: Any, **kwargs: Any) -> Any:
            result = original(model, *args, **kwargs)
            self.skip_own_code()
            # A compiled module is called as any other. Without a model this is a decorator, which calls this again.
            if model is None or result is model or isinstance(result, (module_type, type)) or not callable(result):
                return result
            return self._observe_function(result)

        return compile

    def skip_own_code(self) -> None:
        """Let the compiler skip the collector's functions.

        Between two graphs it would compile all code that runs, the collector's too. Code inside of a graph is not
        affected.
        """
        evaluation = sys.modules.get("torch._dynamo.eval_frame")
        skip = getattr(evaluation, "skip_code", None)
        if self._own_code_skipped or skip is None:
            return
        self._own_code_skipped = True
        for name, module in list(sys.modules.items()):
            if name.startswith(PACKAGES):
                for code in _list_codes(vars(module).values()):
                    skip(code)

    def _observe_function(self, function: Any) -> Any:
        observer = self.observer
        compiling = observer.torch.compiler.is_compiling

        @functools.wraps(function)
        def observed(*args: Any, **kwargs: Any) -> Any:
            if compiling():
                return function(*args, **kwargs)
            stream = observer.current_stream()
            if stream is None or stream.layers or stream.phases:
                return self._run(function, args, kwargs)
            return self._call_as_phase(stream, function, args, kwargs)

        return observed

    def _run(self, function: Any, args: tuple, kwargs: dict) -> Any:
        """Call the function. If this call compiles it, remember whether it computes gradients."""
        gradients = self._gradient_count
        result = function(*args, **kwargs)
        if self._gradient_count != gradients:
            self._learning_codes.add(_code_of(function))
        return result

    def _graph_kind(self, result: Any, args: tuple, kwargs: dict) -> int:
        """Whether the result has no graph, that of a forward or that of a loss: `NONE`, `FORWARD` or `LOSS`."""
        torch = self.observer.torch
        if not torch.is_grad_enabled() or not has_graph(torch, result):
            return NONE
        with torch._C.DisableTorchFunctionSubclass():  # subclasses must not see the access
            follows = any(tensor.grad_fn is not None for tensor in tensors_in(torch, (args, kwargs)))
        return LOSS if follows and isinstance(result, torch.Tensor) and result.dim() == 0 else FORWARD

    def _call_as_phase(self, stream: Stream, function: Any, args: tuple, kwargs: dict) -> Any:
        """Call the function as a phase, and report to the schedule what it was."""
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
            graph = self._graph_kind(result, args, kwargs)
            learned = graph == NONE and _code_of(function) in self._learning_codes
            # An optimizer that stepped between two graphs has announced that itself.
            updated = schedule.steps == steps and (learned or optimizers.weight_versions() != before)
            values = (self._value_codes["optimizer"], -1) if updated else (self._value_codes["graph"], graph)
            stream.push((*values, *observer.evaluations.forward_values()))
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
    """The code that was compiled; it is the same each time that `torch.compile` is called for it."""
    original = getattr(function, "_torchdynamo_orig_callable", function)
    return getattr(original, "__code__", original)


def _list_codes(things: Any) -> list:
    """The code objects of functions, of the methods of classes, and of all nested functions."""
    codes, waiting = [], list(things)
    while waiting:
        thing = waiting.pop()
        if isinstance(thing, CodeType):
            codes.append(thing)
            waiting.extend(constant for constant in thing.co_consts if isinstance(constant, CodeType))
        elif isinstance(thing, FunctionType) and str(thing.__module__).startswith(PACKAGES):
            waiting.append(thing.__code__)
        elif isinstance(thing, type) and thing.__module__.startswith(PACKAGES):
            waiting.extend(vars(thing).values())
        elif isinstance(thing, (staticmethod, classmethod)):
            waiting.append(thing.__func__)
        elif isinstance(thing, property) and thing.fget is not None:
            waiting.append(thing.fget)
    return codes
