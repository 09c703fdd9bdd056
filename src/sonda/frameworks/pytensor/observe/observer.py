"""Observes an unmodified PyTensor program: compilations, and every call of a compiled function.

A call is a step. A function trains if it updates shared variables of floating-point numbers, which the state of a
random generator is not. Forward, loss, backward and optimizer are then one function, and one phase: `fused`. All other
calls are a forward. Linkers that run a graph operation by operation show how long each took; those that compile it into
one piece of code do not.

The program's graphs are not changed: a function is called as it is, and timed.
"""

from __future__ import annotations

import os
import weakref
from time import perf_counter_ns as now
from typing import Any

from ...collector.overhead import measure_recording_costs
from ...collector.patches import PatchingObserver
from ...collector.recorder import Recorder, Stream
from ...collector.watch import ObservedFramework, ProcessWatch, watch_process
from .compilations import NumbaCompilations
from .linkers import WHOLE_GRAPH, OperationRecorder, linker_of, operation_recorder


def observe_pytensor(pytensor: Any, settings: dict, counting: Any = None) -> None:
    """Observe PyTensor in this process until it ends, with counters that are open already."""
    watch = watch_process(settings, counting)
    observer = PyTensorObserver(watch, pytensor)
    observer.install()
    watch.add(
        ObservedFramework(
            "pytensor", observer.remove, lambda: observer.steps, thread_count, measure_recording_costs, observer.facts
        ),
        pytensor=str(pytensor.__version__),
    )


def thread_count() -> int:
    """Threads of PyTensor's products of matrices; everything else runs in one thread."""
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        text = os.environ.get(name, "")
        if text.isdecimal() and int(text):
            return int(text)
    return len(os.sched_getaffinity(0))


class _FunctionState:
    """What is known of a compiled function: number, codes, linker, whether it trains, who records its operations."""

    __slots__ = ("linker", "number", "operations", "phase", "root", "trains")

    def __init__(
        self, number: int, phase: int, root: int, linker: str, trains: bool, operations: OperationRecorder | None
    ) -> None:
        self.number, self.phase, self.root = number, phase, root
        self.linker, self.trains, self.operations = linker, trains, operations


class PyTensorObserver(PatchingObserver):
    """Replaces `pytensor.function` and the call of a function on `install`; `remove` puts everything back."""

    def __init__(self, watch: ProcessWatch, pytensor: Any) -> None:
        super().__init__()
        self.watch = watch
        self.recorder: Recorder = watch.recorder
        self.pytensor = pytensor
        self.steps = 0
        self.compilations = NumbaCompilations()
        self._functions = 0
        self._linkers: dict = {}
        """The number of steps by linker."""
        self._states: Any = weakref.WeakKeyDictionary()
        """By the maker of a function: the function itself cannot have weak references."""
        define = self.recorder.define
        self._forward = watch.phases.codes["forward"]
        self._fused = watch.phases.codes["fused"]
        self._warmup = define(kind="pass", name="warmup")
        self._values = {
            name: define(kind="value", quantity=name, source="counted")
            for name in ("shape", "training", "optimizer", "exhausted")
        }

    # ---- installing -------------------------------------------------------------------------------------------

    def install(self) -> None:
        from pytensor.compile import maker
        from pytensor.compile.executor import Function

        wrapped = self._wrap_compiling(maker.function)
        for owner in (self.pytensor, self.pytensor.compile, maker):
            self.replace(owner, "function", lambda _: wrapped)  # one for all three
        self.replace(Function, "__call__", self._wrap_call)
        self.on = True

    def remove(self) -> None:
        super().remove()
        self.compilations.stop()
        for state in list(self._states.values()):
            if state.operations is not None:
                state.operations.remove()

    def _stream(self) -> Stream | None:
        """This thread's stream; None where nothing is recorded, or this call is part of a recorded one."""
        if not self.on or self.recorder.off or self.watch.schedule.over:
            return None
        stream = self.recorder.stream()
        return None if stream.phases or stream.layers else stream

    # ---- compiling --------------------------------------------------------------------------------------------

    def _wrap_compiling(self, original: Any) -> Any:
        """A wrapper of `pytensor.function`, which rewrites a graph and, with some linkers, compiles it."""

        def function(*args: Any, **kwargs: Any) -> Any:
            stream = self._stream()
            if stream is None:
                return original(*args, **kwargs)
            code = self.recorder.define(kind="compile", name=str(kwargs.get("name") or "pytensor.function"))
            # Graphs inside a graph (the body of a loop) are compiled within the time of the outer one.
            stream.layers.append(code)
            stream.push((code, now()))
            try:
                return original(*args, **kwargs)
            finally:
                stream.push((code + 1, now()))
                stream.layers.pop()

        return function

    # ---- calling ----------------------------------------------------------------------------------------------

    def _wrap_call(self, original: Any) -> Any:
        """A wrapper of the call of a compiled function."""
        state_of = self._states.get

        def call(function: Any, *args: Any, **kwargs: Any) -> Any:
            stream = self._stream()
            if stream is None:
                return original(function, *args, **kwargs)
            state = state_of(function.maker)
            if state is None:
                state = self._inspect(function)
                if state.linker in WHOLE_GRAPH:
                    return self._first_call(original, function, state, stream, args, kwargs)
                self._states[function.maker] = state
            detail = stream.detail
            stream.begin(state.phase, None)
            if detail:
                stream.push((state.root, now()))
                if state.operations is not None:
                    state.operations.begin(stream)
            failed = True
            try:
                result = original(function, *args, **kwargs)
                failed = False
                return result
            finally:
                if detail:
                    if state.operations is not None:
                        state.operations.end(stream)
                    stream.push((state.root + 1, now()))
                self._end_call(stream, state, failed)

        return call

    def _first_call(
        self, original: Any, function: Any, state: _FunctionState, stream: Stream, args: tuple, kwargs: dict
    ) -> Any:
        """Run the first call, in which Numba compiles: compiling is a span of its own, and the step begins after it.

        If the code was on disk, nothing tells how long loading took: then the step is of the pass `warmup`.
        """
        self.compilations.listen()
        self.compilations.take_intervals()
        stream.layers.append(state.root)  # calls inside it are a part of it
        failed = True
        begin = now()
        try:
            result = original(function, *args, **kwargs)
            failed = False
            return result
        finally:
            end = now()
            stream.layers.pop()
            code = self.recorder.define(kind="compile", name=f"{function.name or 'pytensor.function'}: Numba")
            compiled = self.compilations.take_intervals()
            for started, ended in compiled:
                stream.push((code, started, code + 1, ended))
                begin = ended
            if not failed:
                self._states[function.maker] = state
                root = (state.root, begin, state.root + 1, end) if stream.detail else ()
                step = (state.phase, begin, *root, *self._call_values(state), state.phase + 1, end)
                stream.push(step if compiled else (self._warmup, begin, *step, self._warmup + 1, end))
                self._count_step(state)

    def _end_call(self, stream: Stream, state: _FunctionState, failed: bool) -> None:
        """Close the phase of a call with values that say what it was. A failed call is no step, like an empty fetch."""
        stream.push((self._values["exhausted"], 1) if failed else self._call_values(state))
        stream.end()
        if not failed:
            self._count_step(state)

    def _call_values(self, state: _FunctionState) -> tuple:
        values = self._values
        described = (values["shape"], 0, values["training"], int(state.trains))
        return (*described, values["optimizer"], state.number) if state.trains else described

    def _count_step(self, state: _FunctionState) -> None:
        self.steps += 1
        self._linkers[state.linker] = self._linkers.get(state.linker, 0) + 1
        self.watch.end_step(now())

    def _inspect(self, function: Any) -> _FunctionState:
        linker = linker_of(function)
        trains = any(_is_trained(entry) for entry in function.maker.expanded_inputs)
        self._functions += 1
        number = self._functions
        name = str(function.name or "function")
        root = self.recorder.define(
            kind="layer", name=name, path="", root=number, root_name=name, direction="forward"
        )  # fmt: skip
        operations = None if linker in WHOLE_GRAPH else operation_recorder(function, self.recorder, number, name)
        return _FunctionState(number, self._fused if trains else self._forward, root, linker, trains, operations)

    # ---- what only the end knows ------------------------------------------------------------------------------

    def facts(self) -> dict:
        """Notes about linkers."""
        notes = []
        for linker, steps in sorted(self._linkers.items(), key=lambda item: -item[1]):
            inside = (
                "" if linker not in WHOLE_GRAPH else ": one piece of code, in which no operation has a time of its own"
            )
            notes.append(f"PyTensor's linker of {steps:,} steps was {linker}{inside}")
        return {"notes": [*self.watch.schedule.notes, *notes]} if notes else {}


def _is_trained(entry: Any) -> bool:
    """Whether an input of a graph is a variable of floating-point numbers that the function updates."""
    dtype = str(getattr(entry.variable.type, "dtype", ""))
    return entry.update is not None and dtype.startswith(("float", "complex", "bfloat"))
