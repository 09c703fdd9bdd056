"""Observes an unmodified PyTensor program: compilations, and every call of a compiled function.

A call is a step. One that updates shared variables of numbers trains (a random generator's state is no such variable):
forward, loss, backward and optimizer are one function, so it is one phase, `fused`. All others are a forward. Linkers
that run a graph operation by operation show how long each took; those that make one piece of code of it do not.

Nothing of the program's graphs is changed: a function is called as it is, with clocks around it.
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
from .linkers import IN_ONE, Nodes, linker_of, nodes_of


def observe_pytensor(pytensor: Any, settings: dict, counting: Any = None) -> None:
    """Observe PyTensor in this process until it ends, with counters that are open already."""
    watch = watch_process(settings, counting)
    observer = PyTensorObserver(watch, pytensor)
    observer.install()
    watch.add(
        ObservedFramework(
            "pytensor", observer.remove, lambda: observer.steps, threads, measure_recording_costs, observer.facts
        ),
        pytensor=str(pytensor.__version__),
    )


def threads() -> int:
    """Threads of PyTensor's products of matrices; everything else runs in one."""
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        text = os.environ.get(name, "")
        if text.isdecimal() and int(text):
            return int(text)
    return len(os.sched_getaffinity(0))


class _Known:
    """What is known of a compiled function: its name, whether it trains, its codes, its linker, and its operations."""

    __slots__ = ("linker", "nodes", "number", "phase", "root", "trains")

    def __init__(self, number: int, phase: int, root: int, linker: str, trains: bool, nodes: Nodes | None) -> None:
        self.number, self.phase, self.root = number, phase, root
        self.linker, self.trains, self.nodes = linker, trains, nodes


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
        """Steps by linker."""
        self._known: Any = weakref.WeakKeyDictionary()
        """By the maker of a function: the function itself cannot be referred to weakly."""
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

        compiling = self._compiling(maker.function)
        for owner in (self.pytensor, self.pytensor.compile, maker):
            self.replace(owner, "function", lambda _: compiling)  # one for all three
        self.replace(Function, "__call__", self._called)
        self.on = True

    def remove(self) -> None:
        super().remove()
        self.compilations.stop()
        for known in list(self._known.values()):
            if known.nodes is not None:
                known.nodes.remove()

    def _stream(self) -> Stream | None:
        """This thread's stream; None when nothing is to be recorded, or this is a part of something that is."""
        if not self.on or self.recorder.off or self.watch.schedule.over:
            return None
        stream = self.recorder.stream()
        return None if stream.phases or stream.layers else stream

    # ---- compiling --------------------------------------------------------------------------------------------

    def _compiling(self, original: Any) -> Any:
        """`pytensor.function`: rewriting a graph and, with some linkers, compiling it."""

        def function(*args: Any, **kwargs: Any) -> Any:
            stream = self._stream()
            if stream is None:
                return original(*args, **kwargs)
            code = self.recorder.define(kind="compile", name=str(kwargs.get("name") or "pytensor.function"))
            # Graphs inside a graph (a loop's body) are compiled in the time of the one around them.
            stream.layers.append(code)
            stream.push((code, now()))
            try:
                return original(*args, **kwargs)
            finally:
                stream.push((code + 1, now()))
                stream.layers.pop()

        return function

    # ---- calling ----------------------------------------------------------------------------------------------

    def _called(self, original: Any) -> Any:
        """The call of a compiled function."""
        known_of = self._known.get

        def call(function: Any, *args: Any, **kwargs: Any) -> Any:
            stream = self._stream()
            if stream is None:
                return original(function, *args, **kwargs)
            known = known_of(function.maker)
            if known is None:
                known = self._learn(function)
                if known.linker in IN_ONE:
                    return self._first(original, function, known, stream, args, kwargs)
                self._known[function.maker] = known
            detail = stream.detail
            stream.begin(known.phase, None)
            if detail:
                stream.push((known.root, now()))
                if known.nodes is not None:
                    known.nodes.begin(stream)
            failed = True
            try:
                result = original(function, *args, **kwargs)
                failed = False
                return result
            finally:
                if detail:
                    if known.nodes is not None:
                        known.nodes.end(stream)
                    stream.push((known.root + 1, now()))
                self._ended(stream, known, failed)

        return call

    def _first(self, original: Any, function: Any, known: _Known, stream: Stream, args: tuple, kwargs: dict) -> Any:
        """The first call, in which Numba compiles: that comes apart, and the step begins behind it.

        Of code that is found on disk nobody says how long loading took: such a step is of the pass `warmup`.
        """
        self.compilations.listen()
        self.compilations.taken()
        stream.layers.append(known.root)  # what it calls is a part of it
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
            compiled = self.compilations.taken()
            for started, ended in compiled:
                stream.push((code, started, code + 1, ended))
                begin = ended
            if not failed:
                self._known[function.maker] = known
                root = (known.root, begin, known.root + 1, end) if stream.detail else ()
                step = (known.phase, begin, *root, *self._facts(known), known.phase + 1, end)
                stream.push(step if compiled else (self._warmup, begin, *step, self._warmup + 1, end))
                self._stepped(known)

    def _ended(self, stream: Stream, known: _Known, failed: bool) -> None:
        """Close the phase of a call and say what it was. One that failed is no step, as a fetch that found nothing."""
        stream.push((self._values["exhausted"], 1) if failed else self._facts(known))
        stream.end()
        if not failed:
            self._stepped(known)

    def _facts(self, known: _Known) -> tuple:
        values = self._values
        facts = (values["shape"], 0, values["training"], int(known.trains))
        return (*facts, values["optimizer"], known.number) if known.trains else facts

    def _stepped(self, known: _Known) -> None:
        self.steps += 1
        self._linkers[known.linker] = self._linkers.get(known.linker, 0) + 1
        self.watch.end_step(now())

    def _learn(self, function: Any) -> _Known:
        linker = linker_of(function)
        trains = any(_learnt(one) for one in function.maker.expanded_inputs)
        self._functions += 1
        number = self._functions
        name = str(function.name or "function")
        root = self.recorder.define(
            kind="layer", name=name, path="", root=number, root_name=name, direction="forward"
        )  # fmt: skip
        nodes = None if linker in IN_ONE else nodes_of(function, self.recorder, number, name)
        return _Known(number, self._fused if trains else self._forward, root, linker, trains, nodes)

    # ---- what only the end knows ------------------------------------------------------------------------------

    def facts(self) -> dict:
        """Notes about linkers."""
        notes = []
        for linker, steps in sorted(self._linkers.items(), key=lambda one: -one[1]):
            inside = "" if linker not in IN_ONE else ": one piece of code, in which no operation has a time of its own"
            notes.append(f"PyTensor's linker of {steps:,} steps was {linker}{inside}")
        return {"notes": [*self.watch.schedule.notes, *notes]} if notes else {}


def _learnt(entry: Any) -> bool:
    """Whether an input of a graph is a variable of numbers that the function changes."""
    dtype = str(getattr(entry.variable.type, "dtype", ""))
    return entry.update is not None and dtype.startswith(("float", "complex", "bfloat"))
