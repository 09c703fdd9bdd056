"""Makes the jitted functions of a JAX program announce their calls, and changes nothing that they compute.

`jax.jit` gives a wrapper around JAX's own function. An outermost call of it is a phase: `fused` where gradients were
taken while it was traced (forward, backward and mostly the update in one function), `optimizer` where it gives arrays
of the shapes that such a function gives (an update by itself), `forward` otherwise. A gradient that the program takes
outside of any jitted function is `fused` too. JAX works asynchronously: an observed call is waited for, so that its
time is that of its work. A call in which JAX traced and compiled holds a `compile` span, and the step around it is of
the pass `warmup`.

A function whose arguments have no shapes in common with what others learn (an augmentation) is a helper, and no phase.
First calls are held back until the first function that learns is known. A few calls of each function run under JAX's
own profiler (`jit_pass`), which tells what is inside them.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections import Counter
from functools import partial
from time import perf_counter_ns as now
from typing import Any

from ...collector import FOLDERS
from ...collector.overhead import measure_recording_costs
from ...collector.patches import PatchingObserver
from ...collector.piece_pass import AFTER
from ...collector.traces import FunctionTraces, Traces, code_place
from ...collector.watch import ObservedFramework, ProcessWatch, watch_process
from . import devices as jax_devices
from .jit_pass import JaxPass
from .jitted import Jitted, is_of_program, takes_gradients, unseen_functions
from .kernel_pass import JaxKernelPass
from .signatures import CallShapes, arguments_of, shapes_of, signature_of, size_of

COMPILING = "/jax/core/compile/"
"""How the names of JAX's own events about tracing, lowering and compiling begin."""
GRADIENTS = ("grad", "value_and_grad", "vjp", "linearize")
MOST_PENDING = 8
"""First calls that are held back at a time."""
ALIKE = 0.5
"""A function is an update if its results have this share (by size) of the shapes of the last gradients."""
EAGER = "layers are missing: gradients are taken outside of any jitted function, operation by operation"
WAITED = "JAX runs ahead of its device: each observed call was waited for, so that nothing overlapped with it"


class _ThreadState(threading.local):
    """What the calling thread is doing."""

    depth = 0
    """Observed calls that are running; calls inside them are a part of them."""
    compiled_at = 0
    """When JAX last finished tracing or compiling in the running call, ns; 0: it did neither."""
    learns = False
    """Whether gradients were taken in the running call."""


class _FunctionState:
    """What is known of a function: its own number, its arguments, whether it learns or updates."""

    __slots__ = ("adopted", "argument_shapes", "arguments", "calls", "history", "learns", "number", "static", "updates")

    def __init__(self, number: int, history: FunctionTraces, arguments: tuple, static: set) -> None:
        self.number, self.history = number, history
        self.arguments = arguments
        """Names of positional arguments."""
        self.static = static
        """Names of static arguments, whose values are compiled in."""
        self.calls = 0
        self.learns = self.updates = False
        self.adopted = False
        """Whether it existed before it was observed, and may have been traced then."""
        self.argument_shapes: frozenset = frozenset()
        """Shapes and types of the larger arrays that it was compiled for."""


class JaxObserver(PatchingObserver):
    """Replaces `jax.jit` and what takes gradients on `install`; `remove` puts everything back."""

    def __init__(self, watch: ProcessWatch, jax: Any) -> None:
        super().__init__()
        self.watch = watch
        self.jax = jax
        self.recorder = watch.recorder
        self.traces = Traces()
        self.thread = _ThreadState()
        self.steps = 0
        self._functions = 0
        self._gradient_shapes: Counter = Counter()
        """Shapes and types of the results of the last call that learnt, and how often each occurs."""
        self._learnt_shapes: set = set()
        """Shapes and types of the results of all functions that learn."""
        self._pending: list = []
        """First calls that are not written yet: stream, state, begin, end, events of compiling, values, done."""
        define = self.recorder.define
        self._optimizer = define(kind="value", quantity="optimizer", source="counted")
        self._exhausted = define(kind="value", quantity="exhausted", source="counted")
        self._warmup = define(kind="pass", name="warmup")
        schedule = watch.schedule
        self.pieces = JaxPass(self.recorder, jax.profiler, schedule.profile and not schedule.replay)
        self.kernels = JaxKernelPass(self.recorder, jax, schedule.profile or schedule.replay, schedule.replay)
        self.shapes = CallShapes(jax.tree_util)
        self._gpus: list = []
        self._callers: dict = {}
        """By phase: numbers of functions that were called often, or profiled."""

    # ---- installing -------------------------------------------------------------------------------------------

    def install(self) -> None:
        from jax import monitoring
        from jax._src import core, profiler
        from jax.extend import source_info_util

        # JAX keeps with each operation the calls that led to it; calls in our folders are not the program's.
        for folder in FOLDERS:
            source_info_util.register_exclusion(folder)
        self.clean = core.trace_state_clean
        for name in ("jit", "pmap"):
            self._replace_everywhere(name, self._jit)
        for owner in (profiler, self.jax.profiler):
            for profiling_pass in (self.pieces, self.kernels):
                self.replace(owner, "start_trace", profiling_pass.wrap_start)
        for name in GRADIENTS:
            self._replace_everywhere(name, partial(self._wrap_gradient, name=name))
        if self.watch.block:
            self._adopt()
        monitoring.register_event_duration_secs_listener(self._note_compiling)
        self.on = True

    def _replace_everywhere(self, name: str, make: Any) -> None:
        """Replace one of JAX's functions; for a block that begins late also where modules imported it before."""
        original = getattr(self.jax, name)
        self.replace(self.jax, name, make)
        if not self.watch.block:
            return
        wrapper = getattr(self.jax, name)
        for module in list(sys.modules.values()):
            if getattr(module, "__name__", "jax").partition(".")[0] in ("jax", "jaxlib"):
                continue
            for alias in [key for key, value in list(vars(module).items()) if value is original]:
                self.replace(module, alias, lambda _: wrapper)

    def _adopt(self) -> None:
        """Wrap the jitted functions that the program's modules hold already."""
        jitted_type = type(self.jax.jit.__wrapped__(len))
        adopted: dict = {}
        for module in list(sys.modules.values()):
            for name, function in list(vars(module).items()):
                if type(function) is jitted_type and is_of_program(function):
                    if id(function) not in adopted:
                        adopted[id(function)] = self._wrap(function, inspect.unwrap(function), {})
                        adopted[id(function)]._sonda[2].adopted = True
                    setattr(module, name, adopted[id(function)])
                    self._undo.append(partial(setattr, module, name, function))

    def remove(self) -> None:
        self._stop_profiles()
        super().remove()

    def _note_compiling(self, event: str, seconds: float, **details: Any) -> None:
        """A listener: JAX calls it in the same thread when it has traced, lowered or compiled."""
        if event.startswith(COMPILING):
            self.thread.compiled_at = now()

    # ---- functions --------------------------------------------------------------------------------------------

    def _jit(self, original: Any) -> Any:
        def jit(*args: Any, **kwargs: Any) -> Any:
            jitted = original(*args, **kwargs)
            if not args and "fun" not in kwargs:  # `@jax.jit(static_argnums=0)` gives a decorator
                return lambda fun: self._wrap(jitted(fun), fun, kwargs)
            return self._wrap(jitted, args[0] if args else kwargs["fun"], kwargs)

        return jit

    def _wrap(self, function: Any, original: Any, kwargs: dict) -> Any:
        return Jitted(function, self, self._new_state(original, kwargs))

    def _new_state(self, fun: Any, kwargs: dict) -> _FunctionState:
        self._functions += 1
        history = self.traces.find_function(str(getattr(fun, "__name__", "function")), code_place(fun))
        return _FunctionState(self._functions, history, *arguments_of(fun, kwargs))

    @property
    def off(self) -> bool:
        return not self.on or self.recorder.off or self.watch.schedule.over

    def call(self, function: Any, state: _FunctionState, args: tuple, kwargs: dict) -> Any:
        """Call a jitted function; the call is observed if it is outermost and JAX traces nothing around it."""
        if self.off or self.thread.depth or not self.clean():
            return function(*args, **kwargs)
        if state.adopted and not state.calls:
            state.learns = takes_gradients(function, args, kwargs)
        stream = self.recorder.stream()
        if stream.phases:  # of a layer or a loop of Keras': a part of that phase
            return function(*args, **kwargs)
        return self._run_call(
            stream, state, lambda: function(*args, **kwargs), (args, kwargs),
            lambda: function.lower(*args, **kwargs),
        )  # fmt: skip

    def _phase(self, state: _FunctionState) -> str:
        """The phase of a call of this function; '' for a helper."""
        if state.learns or state.updates:
            return "fused" if state.learns else "optimizer"
        if self._learnt_shapes and not self.watch.loops.running and not state.argument_shapes & self._learnt_shapes:
            return ""
        return "forward"

    def _run_call(self, stream: Any, state: _FunctionState, work: Any, arguments: tuple, lower: Any = None) -> Any:
        """Run `work`, a call with these arguments, and record it; `lower` lowers it for XLA, where it is jitted."""
        thread, history, codes = self.thread, state.history, self.watch.phases.codes
        thread.depth, thread.compiled_at, thread.learns = 1, 0, False
        # What a function does is known once it was traced: the phase of its first call is written afterwards.
        first = not state.calls
        state.calls += 1
        phase = ""
        profiling, profiled_at = None, 0
        if lower is not None:
            self.shapes.note_call(state, arguments, now())
        if not first:
            self._write_pending()
            phase = self._phase(state)
        if phase:
            if lower is not None:
                profiling = self._choose_pass(state, phase)
            if profiling is not None:
                profiled_at = now()
                stream.push((profiling.code, profiled_at))
            if profiling is self.pieces or state.calls > AFTER:
                self._callers.setdefault(phase, set()).add(state.number)
            stream.begin(codes[phase], None)
        if profiling is None:
            self.pieces.end_if_late()
            self.kernels.end_if_late()
        # The phase has begun: compiling lies inside it.
        begin = now()
        done, result = False, None
        try:
            result = self.jax.block_until_ready(work())
            done = True
            return result
        finally:
            thread.depth = 0
            end = now()
            history.calls += 1
            history.call_ns += end - begin
            compiled = thread.compiled_at
            if compiled or (first and state.adopted):
                self._learn_of_call(state, arguments, result if done else None, begin, end, lower is not None)
            # Functions that the program makes anew at one place are the same one.
            learnt = (self._optimizer, id(history)) if state.learns else ()
            values = (*(learnt if done else (self._exhausted, 1)), *self.watch.loops.phase_values())
            compile_events = self._compile_events(history.name, begin, compiled, end) if compiled else ()
            asked = phase and not compiled
            if asked and (self.pieces.pop_settling() | self.kernels.pop_settling()) and profiling is None:
                compile_events = (self._warmup, begin, self._warmup + 1, end)
            if first:
                self._hold_back(stream, state, begin, end, compile_events, values, done)
            else:
                stream.push(compile_events)
            if phase:
                stream.push(values)
                stream.end()
                if profiling is not None:
                    self._end_profiled(profiling, stream, state, phase, profiled_at, done, bool(compiled), lower)
                if done and not state.updates:
                    self._count_step()

    def _end_profiled(
        self, profiling: Any, stream: Any, state: _FunctionState, phase: str, begin: int, done: bool, compiled: bool,
        lower: Any,
    ) -> None:  # fmt: skip
        """End a call that was profiled in the pass `profiling` since `begin`, ns."""
        stream.push((profiling.code + 1, now()))
        shapes = self.shapes.current(state.number)
        profiling.note_call(state.number, state.history.name, phase, begin, done, compiled, shapes, lower)

    def _learn_of_call(
        self, state: _FunctionState, arguments: tuple, result: Any, begin: int, end: int, jitted: bool
    ) -> None:
        """Find out what a function does: from a call in which JAX compiled, or the first call of an adopted one."""
        compiled = self.thread.compiled_at
        if not compiled:
            self._classify(state, arguments, result)
            return
        if jitted:
            self.shapes.note_call(state, arguments, begin, compiled=True)
        self._note_trace(state, arguments, result, compiled - begin, end - compiled)

    def _hold_back(
        self, stream: Any, state: _FunctionState, begin: int, end: int, compile_events: tuple, values: tuple, done: bool
    ) -> None:
        """Keep a first call until it is known which functions learn."""
        self._pending.append((stream, state, begin, end, compile_events, values, done))
        if self._learnt_shapes or state.learns or self.watch.loops.running or len(self._pending) >= MOST_PENDING:
            self._write_pending()

    def _choose_pass(self, state: _FunctionState, phase: str) -> Any:
        """The pass in which the coming call is profiled; None where it is not."""
        number, updates = state.number, phase == "optimizer"
        self.kernels.comes(number)
        # An update has no layers: by itself it is not worth a profile.
        wanted = not self.kernels.running and (not updates or self.pieces.running)
        if wanted and self.pieces.begin_call(number, self.shapes.current(number)):
            return self.pieces
        learns = phase == "fused" or not (self._learnt_shapes or updates)
        recorded = not self.pieces.running and self.kernels.begin_call(number, state.calls, learns)
        return self.kernels if recorded else None

    def _stop_profiles(self) -> None:
        self.pieces.stop()
        self.kernels.stop()

    def _write_pending(self) -> None:
        """Write the first calls that were held back, with the phases that are known by now."""
        while self._pending:
            stream, state, begin, end, compile_events, values, done = self._pending.pop(0)
            phase = self._phase(state)
            if not phase:
                stream.push(compile_events)
                continue
            code = self.watch.phases.codes[phase]
            stream.push((code, begin, *compile_events, *values, code + 1, end))
            self.recorder.flush_if_due(stream, end)
            if done and not state.updates:
                self._count_step()

    def count_steps(self) -> int:
        """The number of steps so far, with those that were held back."""
        self._write_pending()
        return self.steps

    def _count_step(self) -> None:
        if not self.steps:
            self.watch.schedule.notes.append(WAITED)
            self._gpus = jax_devices.gpus(self.jax)
        self.steps += 1
        self.watch.end_step(now())
        if self.watch.schedule.over:
            self._stop_profiles()

    def facts(self) -> dict:
        """Facts that are stated at the end."""
        self._stop_profiles()
        traced = self.traces.facts()
        callers = {phase: sorted(numbers) for phase, numbers in self._callers.items()}
        stated = self.pieces.facts(self.steps > 0 and EAGER not in self.watch.schedule.notes, callers)
        if "callers" in stated:
            stated["shapes"] = self.shapes.facts()
        if self._gpus:
            stated["jitted_s"] = stated.get("jitted_s", 0.0) + self.kernels.spent / 1e9
            stated |= {**jax_devices.describe_gpus(self.jax, self._gpus), **self.kernels.facts()}
        return {**({"traced": traced} if traced else {}), **stated}

    def _compile_events(self, name: str, begin: int, compiled: int, end: int) -> tuple:
        code = self.recorder.define(kind="compile", name=name)
        return (self._warmup, begin, code, begin, code + 1, compiled, self._warmup + 1, end)

    def _note_trace(self, state: _FunctionState, arguments: tuple, result: Any, lasted: int, run: int) -> None:
        """Note why JAX traced and compiled in a call, for `lasted` ns; the rest of the call took `run` ns."""
        try:
            signature = signature_of(self.jax.tree_util, state.arguments, state.static, *arguments)
        except Exception:  # of an argument that cannot be written, or is no tree
            signature = {}
        self.traces.add_trace(state.history, state.number, signature, lasted, run)
        self._classify(state, arguments, result)

    def _classify(self, state: _FunctionState, arguments: tuple, result: Any) -> None:
        """Decide from a call whether a function learns, updates, or does neither."""
        state.argument_shapes |= frozenset(shapes_of(self.jax.tree_util, arguments))
        shapes = shapes_of(self.jax.tree_util, result)
        if self.thread.learns or state.learns:
            state.learns = True
            self._gradient_shapes = shapes
            self._learnt_shapes.update(shapes)
        elif not state.learns:
            state.updates = size_of(shapes & self._gradient_shapes) > ALIKE * size_of(self._gradient_shapes) > 0

    # ---- gradients --------------------------------------------------------------------------------------------

    def _wrap_gradient(self, original: Any, name: str) -> Any:
        """`jax.grad(f)` gives a function; `jax.vjp(f, x)` differentiates at once."""
        at_once = name in ("vjp", "linearize")

        def differentiate(*args: Any, **kwargs: Any) -> Any:
            if at_once:
                self.thread.learns = True
                return original(*args, **kwargs)
            gradient = original(*args, **kwargs)
            state = self._new_state(args[0] if args else kwargs.get("fun"), {})
            state.learns = True
            return _copy_names(gradient, lambda *a, **k: self._call_gradient(gradient, state, a, k))

        return differentiate

    def _call_gradient(self, gradient: Any, state: _FunctionState, args: tuple, kwargs: dict) -> Any:
        thread = self.thread
        if thread.depth:
            thread.learns = True
        if self.off or thread.depth or not self.clean():
            return gradient(*args, **kwargs)
        stream = self.recorder.stream()
        if stream.phases:
            return gradient(*args, **kwargs)
        if EAGER not in self.watch.schedule.notes:
            self.watch.schedule.notes.append(EAGER)
        return self._run_call(stream, state, lambda: gradient(*args, **kwargs), (args, kwargs))


def _copy_names(original: Any, wrapper: Any) -> Any:
    for attribute in ("__name__", "__qualname__", "__doc__", "__module__", "__wrapped__"):
        value = getattr(original, attribute, None)
        if value is not None:
            setattr(wrapper, attribute, value)
    return wrapper


def observe_jax(jax: Any, settings: dict, counting: Any = None) -> None:
    """Observe JAX in this process until it ends, with counters that are open already."""
    watch = watch_process(settings, counting)
    observer = JaxObserver(watch, jax)
    observer.install()
    watch.add(
        ObservedFramework(
            "jax",
            observer.remove,
            observer.count_steps,
            jax_devices.thread_count,
            measure_recording_costs,
            observer.facts,
            unseen=lambda: unseen_functions(jax),
        ),
        jax=str(jax.__version__),
    )
