"""Makes the jitted functions of a JAX program announce their calls, and changes nothing that they compute.

`jax.jit` gives a function that stands before JAX's own. An outermost call of it is a phase: `fused` where gradients
were taken while it was traced (forward, backward and mostly the update in one function), `optimizer` where it gives
arrays of the shapes that such a function gives (an update by itself), `forward` otherwise. A gradient that the program
takes outside of any jitted function is `fused` too. JAX hands work over and runs ahead: an observed call is waited for,
so that its time is that of its work. A call in which JAX traced and compiled holds a `compile` span, and the step
around it is of the pass `warmup`. A function that is given none of what others learn (an augmentation) is a helper, and
no phase; what is called before the first function that learns is held back until that one tells. What is inside a
function, a few of its calls under JAX's own profiler tell (`jax_pass`).
"""

from __future__ import annotations

import gc
import inspect
import os
import sys
import threading
import types
from collections import Counter
from functools import partial
from time import perf_counter_ns as now
from typing import Any

from ...collector import FOLDERS
from ...collector.overhead import measure_recording_costs
from ...collector.patches import PatchingObserver
from ...collector.piece_pass import AFTER
from ...collector.traces import TracedFunction, Traces, code_place
from ...collector.watch import ObservedFramework, ProcessWatch, watch_process
from . import devices as jax_devices
from .jit_pass import JaxPass
from .kernel_pass import JaxKernelPass
from .signatures import Shapes, arguments_of, shapes_of, signature_of, size_of

COMPILING = "/jax/core/compile/"
"""What JAX's own events about tracing, lowering and compiling begin with."""
GRADIENTS = ("grad", "value_and_grad", "vjp", "linearize")
MOST_HELD = 8
"""First calls that are held back at a time."""
ALIKE = 0.5
"""A function updates where it gives this share, by size, of what a function that takes gradients gives."""
KERAS_TRAINER = "keras/src/backend/jax/trainer.py"
STANDARD_LIBRARY = os.path.dirname(os.__file__)
EAGER = "layers are missing: gradients are taken outside of any jitted function, operation by operation"
WAITED = "JAX runs ahead of its device: each observed call was waited for, so that nothing overlapped with it"


class _Mine(threading.local):
    """Of the calling thread."""

    depth = 0
    """Observed calls that are running; what they call in turn is a part of them."""
    compiled_at = 0
    """When JAX was last done with tracing or compiling in the running call, ns; 0: it did neither."""
    learns = False
    """Gradients were taken in the running call."""


class _Known:
    """What is known of a function: a number that no other has, its arguments, whether it learns or updates."""

    __slots__ = ("about", "adopted", "arguments", "calls", "given", "learns", "number", "static", "updates")

    def __init__(self, number: int, about: TracedFunction, arguments: tuple, static: set) -> None:
        self.number, self.about = number, about
        self.arguments = arguments
        """Names of those that have a place."""
        self.static = static
        """Names of those whose values are compiled in."""
        self.calls = 0
        self.learns = self.updates = False
        self.adopted = False
        """It was there before it was observed, and may have been traced then."""
        self.given: frozenset = frozenset()
        """Shapes and types of the larger arrays that it was compiled for."""


class Jitted:
    """A jitted function of JAX's with an observer before it: whatever else is asked of it, JAX's own answers."""

    def __init__(self, function: Any, observer: Any, known: _Known) -> None:
        self.__dict__.update(getattr(function, "__dict__", {}))
        self.__wrapped__ = getattr(function, "__wrapped__", function)
        self._sonda = (function, observer, known)
        for name in ("__name__", "__qualname__", "__doc__", "__module__"):
            value = getattr(function, name, None)
            if value is not None:
                setattr(self, name, value)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        function, observer, known = self._sonda
        return observer.call(function, known, args, kwargs)

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        return self if owner is None else types.MethodType(self, owner)

    def __getattr__(self, name: str) -> Any:
        if name == "_sonda":  # a copy that is not complete yet
            raise AttributeError(name)
        return getattr(self._sonda[0], name)

    def __repr__(self) -> str:
        return repr(self._sonda[0])

    def __reduce__(self) -> Any:
        return self._sonda[0].__reduce__()


def functions_unseen(jax: Any) -> list:
    """Names of the program's jitted functions that no observer stands before: `jax.jit` made them before it was
    observed."""
    own = type(getattr(jax.jit, "__wrapped__", jax.jit)(len))
    seen, names = set(), {}
    for thing in gc.get_objects():
        if type(thing) is Jitted:
            seen.add(id(thing._sonda[0]))
        elif type(thing) is own and _of_the_program(thing):
            names[id(thing)] = str(getattr(thing, "__name__", "function"))
    return sorted({name for number, name in names.items() if number not in seen})


def _takes_gradients(function: Any, args: tuple, kwargs: dict) -> bool:
    """Whether a function that JAX has traced already differentiates: backward operations are named so by JAX."""
    try:
        return any("transpose(" in stack for stack in _name_stacks(function.trace(*args, **kwargs).jaxpr.jaxpr))
    except Exception:  # JAX says in the call itself what is wrong with these arguments
        return False


def _name_stacks(jaxpr: Any) -> Any:
    """Where each operation of a function comes from, those of functions inside it too."""
    for operation in jaxpr.eqns:
        yield str(operation.source_info.name_stack)
        for value in operation.params.values():
            for inner in value if isinstance(value, (list, tuple)) else (value,):
                inner = getattr(inner, "jaxpr", inner)
                if hasattr(inner, "eqns"):
                    yield from _name_stacks(inner)


def _of_the_program(function: Any) -> bool:
    """Whether a program wrote it, or has Keras train with it: a library's own helpers are none."""
    place = getattr(getattr(inspect.unwrap(function), "__code__", None), "co_filename", "").replace(os.sep, "/")
    installed = any(f"/{folder}/" in place for folder in ("site-packages", "dist-packages"))
    return bool(place) and (not installed or place.endswith(KERAS_TRAINER)) and not place.startswith(STANDARD_LIBRARY)


class JaxObserver(PatchingObserver):
    """Replaces `jax.jit` and what takes gradients on `install`; `remove` puts everything back."""

    def __init__(self, watch: ProcessWatch, jax: Any) -> None:
        super().__init__()
        self.watch = watch
        self.jax = jax
        self.recorder = watch.recorder
        self.traces = Traces()
        self.mine = _Mine()
        self.steps = 0
        self._made = 0
        self._gradients: Counter = Counter()
        """Shapes and types of what the last function that learns has given."""
        self._learnt: set = set()
        """Those of all functions that learn."""
        self._held: list = []
        """First calls that are not written yet: stream, function, begin, end, events of compiling, values, done."""
        define = self.recorder.define
        self._optimizer = define(kind="value", quantity="optimizer", source="counted")
        self._exhausted = define(kind="value", quantity="exhausted", source="counted")
        self._warmup = define(kind="pass", name="warmup")
        schedule = watch.schedule
        self.pieces = JaxPass(self.recorder, jax.profiler, schedule.profile and not schedule.replay)
        self.kernels = JaxKernelPass(self.recorder, jax, schedule.profile or schedule.replay, schedule.replay)
        self.shapes = Shapes(jax.tree_util)
        self._gpus: list = []
        self._callers: dict = {}
        """By phase: functions that were called often, or profiled."""

    # ---- installing -------------------------------------------------------------------------------------------

    def install(self) -> None:
        from jax import monitoring
        from jax._src import core, profiler
        from jax.extend import source_info_util

        # JAX keeps with each operation the calls that led to it: those of our folders are none of the program's.
        for folder in FOLDERS:
            source_info_util.register_exclusion(folder)
        self.clean = core.trace_state_clean
        for name in ("jit", "pmap"):
            self._replace_everywhere(name, self._jit)
        for owner in (profiler, self.jax.profiler):
            for one in (self.pieces, self.kernels):
                self.replace(owner, "start_trace", one.wrap_start)
        for name in GRADIENTS:
            self._replace_everywhere(name, partial(self._differentiating, name=name))
        if self.watch.block:
            self._adopt()
        monitoring.register_event_duration_secs_listener(self._compiling)
        self.on = True

    def _replace_everywhere(self, name: str, make: Any) -> None:
        """Replace one of JAX's functions, and where a block begins late, also what modules took of JAX before it."""
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
        """Stand before the jitted functions that the program's modules hold already."""
        own = type(self.jax.jit.__wrapped__(len))
        adopted: dict = {}
        for module in list(sys.modules.values()):
            for alias, value in list(vars(module).items()):
                if type(value) is own and _of_the_program(value):
                    if id(value) not in adopted:
                        adopted[id(value)] = self._observed(value, inspect.unwrap(value), {})
                        adopted[id(value)]._sonda[2].adopted = True
                    setattr(module, alias, adopted[id(value)])
                    self._undo.append(partial(setattr, module, alias, value))

    def remove(self) -> None:
        self._stop_profiles()
        super().remove()

    def _compiling(self, event: str, seconds: float, **about: Any) -> None:
        """JAX says how long it traced, lowered or compiled, in the thread that did, once it is done."""
        if event.startswith(COMPILING):
            self.mine.compiled_at = now()

    # ---- functions --------------------------------------------------------------------------------------------

    def _jit(self, original: Any) -> Any:
        def jit(*args: Any, **kwargs: Any) -> Any:
            made = original(*args, **kwargs)
            if not args and "fun" not in kwargs:  # `@jax.jit(static_argnums=0)` gives a decorator
                return lambda fun: self._observed(made(fun), fun, kwargs)
            return self._observed(made, args[0] if args else kwargs["fun"], kwargs)

        return jit

    def _observed(self, made: Any, fun: Any, kwargs: dict) -> Any:
        return Jitted(made, self, self._known(fun, kwargs))

    def _known(self, fun: Any, kwargs: dict) -> _Known:
        self._made += 1
        about = self.traces.find_function(str(getattr(fun, "__name__", "function")), code_place(fun))
        return _Known(self._made, about, *arguments_of(fun, kwargs))

    @property
    def off(self) -> bool:
        return not self.on or self.recorder.off or self.watch.schedule.over

    def call(self, function: Any, known: _Known, args: tuple, kwargs: dict) -> Any:
        """A call of a jitted function: observed where it is outermost and nothing is traced around it."""
        if self.off or self.mine.depth or not self.clean():
            return function(*args, **kwargs)
        if known.adopted and not known.calls:
            known.learns = _takes_gradients(function, args, kwargs)
        stream = self.recorder.stream()
        if stream.phases:  # of a layer or a loop of Keras': a part of that phase
            return function(*args, **kwargs)
        return self._run(
            stream, known, lambda: function(*args, **kwargs), (args, kwargs),
            lambda: function.lower(*args, **kwargs),
        )  # fmt: skip

    def _phase(self, known: _Known) -> str:
        """The phase that a call is; '' for a helper's."""
        if known.learns or known.updates:
            return "fused" if known.learns else "optimizer"
        if self._learnt and not self.watch.loops.running and not known.given & self._learnt:
            return ""
        return "forward"

    def _run(self, stream: Any, known: _Known, work: Any, given: tuple, lower: Any = None) -> Any:
        """`lower` gives what XLA makes something of, where it is a jitted function."""
        mine, about, codes = self.mine, known.about, self.watch.phases.codes
        mine.depth, mine.compiled_at, mine.learns = 1, 0, False
        # What a function is, is known once it was traced: only then its first call can be written.
        first = not known.calls
        known.calls += 1
        phase = ""
        profiling, profiled = None, 0
        """The pass that the call is profiled in, and since when, ns."""
        if lower is not None:
            self.shapes.called(known, given, now())
        if not first:
            self._release()
            phase = self._phase(known)
        if phase:
            if lower is not None:
                profiling = self._profiling(known, phase)
            if profiling is not None:
                profiled = now()
                stream.push((profiling.code, profiled))
            if profiling is self.pieces or known.calls > AFTER:
                self._callers.setdefault(phase, set()).add(known.number)
            stream.begin(codes[phase], None)
        if profiling is None:
            for one in (self.pieces, self.kernels):
                one.end_if_late()
        # After the phase has begun: what was compiled lies inside it.
        begin = now()
        done = False
        result = None
        try:
            result = self.jax.block_until_ready(work())
            done = True
            return result
        finally:
            mine.depth = 0
            end = now()
            about.calls += 1
            about.call_ns += end - begin
            compiled = mine.compiled_at
            if compiled:
                if lower is not None:
                    self.shapes.called(known, given, begin, compiled=True)
                self._traced(known, given, result if done else None, compiled - begin, end - compiled)
            elif first and known.adopted:
                self._classify(known, given, result if done else None)
            # A function that is made anew at one place of the program is the same one.
            learnt = (self._optimizer, id(about)) if known.learns else ()
            values = (*(learnt if done else (self._exhausted, 1)), *self.watch.loops.phase_values())
            making = self._compile_events(about.name, begin, compiled, end) if compiled else ()
            asked = phase and not compiled
            if asked and (self.pieces.pop_settling() | self.kernels.pop_settling()) and profiling is None:
                making = (self._warmup, begin, self._warmup + 1, end)
            if first:
                self._held.append((stream, known, begin, end, making, values, done))
                if self._learnt or known.learns or self.watch.loops.running or len(self._held) >= MOST_HELD:
                    self._release()
            else:
                stream.push(making)
            if phase:
                stream.push(values)
                stream.end()
                if profiling is not None:
                    stream.push((profiling.code + 1, now()))
                    shapes = self.shapes.now(known.number)
                    profiling.called(known.number, about.name, phase, profiled, done, bool(compiled), shapes, lower)
                if done and not known.updates:
                    self._stepped()

    def _profiling(self, known: _Known, phase: str) -> Any:
        """The pass that the call that comes is profiled in; None for a call like any other."""
        number, updates = known.number, phase == "optimizer"
        self.kernels.comes(number)
        # An update has no layers: by itself it is not worth a profile.
        wanted = not self.kernels.running and (not updates or self.pieces.running)
        if wanted and self.pieces.begin_call(number, self.shapes.now(number)):
            return self.pieces
        learns = phase == "fused" or not (self._learnt or updates)
        recorded = not self.pieces.running and self.kernels.begin_call(number, known.calls, learns)
        return self.kernels if recorded else None

    def _stop_profiles(self) -> None:
        self.pieces.stop()
        self.kernels.stop()

    def _release(self) -> None:
        """Write the first calls that were held back, as what is known of their functions by now."""
        while self._held:
            stream, known, begin, end, making, values, done = self._held.pop(0)
            phase = self._phase(known)
            if not phase:
                stream.push(making)
                continue
            code = self.watch.phases.codes[phase]
            stream.push((code, begin, *making, *values, code + 1, end))
            self.recorder.flush_if_due(stream, end)
            if done and not known.updates:
                self._stepped()

    def announced(self) -> int:
        """Steps so far, with what was held back."""
        self._release()
        return self.steps

    def _stepped(self) -> None:
        if not self.steps:
            self.watch.schedule.notes.append(WAITED)
            self._gpus = jax_devices.gpus(self.jax)
        self.steps += 1
        self.watch.end_step(now())
        if self.watch.schedule.over:
            self._stop_profiles()

    def facts(self) -> dict:
        """What only the end knows."""
        self._stop_profiles()
        traced = self.traces.facts()
        callers = {phase: sorted(numbers) for phase, numbers in self._callers.items()}
        inside = self.pieces.facts(self.steps > 0 and EAGER not in self.watch.schedule.notes, callers)
        if "callers" in inside:
            inside["shapes"] = self.shapes.facts()
        if self._gpus:
            inside["jitted_s"] = inside.get("jitted_s", 0.0) + self.kernels.spent / 1e9
            inside |= {**jax_devices.about(self.jax, self._gpus), **self.kernels.facts()}
        return {**({"traced": traced} if traced else {}), **inside}

    def _compile_events(self, name: str, begin: int, compiled: int, end: int) -> tuple:
        code = self.recorder.define(kind="compile", name=name)
        return (self._warmup, begin, code, begin, code + 1, compiled, self._warmup + 1, end)

    def _traced(self, known: _Known, given: tuple, result: Any, lasted: int, run: int) -> None:
        """A call in which JAX traced and compiled for `lasted` ns: why."""
        try:
            signature = signature_of(self.jax.tree_util, known.arguments, known.static, *given)
        except Exception:  # of an argument that cannot be written, or is no tree
            signature = {}
        self.traces.add_trace(known.about, known.number, signature, lasted, run)
        self._classify(known, given, result)

    def _classify(self, known: _Known, given: tuple, result: Any) -> None:
        """What kind of function it is: one that learns, updates, or neither."""
        known.given |= frozenset(shapes_of(self.jax.tree_util, given))
        shapes = shapes_of(self.jax.tree_util, result)
        if self.mine.learns or known.learns:
            known.learns = True
            self._gradients = shapes
            self._learnt.update(shapes)
        elif not known.learns:
            known.updates = size_of(shapes & self._gradients) > ALIKE * size_of(self._gradients) > 0

    # ---- gradients --------------------------------------------------------------------------------------------

    def _differentiating(self, original: Any, name: str) -> Any:
        """`jax.grad(f)` gives a function; `jax.vjp(f, x)` differentiates at once."""
        at_once = name in ("vjp", "linearize")

        def differentiate(*args: Any, **kwargs: Any) -> Any:
            if at_once:
                self.mine.learns = True
                return original(*args, **kwargs)
            made = original(*args, **kwargs)
            known = self._known(args[0] if args else kwargs.get("fun"), {})
            known.learns = True
            return _named(made, lambda *a, **k: self._gradient(made, known, a, k))

        return differentiate

    def _gradient(self, made: Any, known: _Known, args: tuple, kwargs: dict) -> Any:
        mine = self.mine
        if mine.depth:
            mine.learns = True
        if self.off or mine.depth or not self.clean():
            return made(*args, **kwargs)
        stream = self.recorder.stream()
        if stream.phases:
            return made(*args, **kwargs)
        if EAGER not in self.watch.schedule.notes:
            self.watch.schedule.notes.append(EAGER)
        return self._run(stream, known, lambda: made(*args, **kwargs), (args, kwargs))


def _named(original: Any, wrapper: Any) -> Any:
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
            observer.announced,
            jax_devices.thread_count,
            measure_recording_costs,
            observer.facts,
            unseen=lambda: functions_unseen(jax),
        ),
        jax=str(jax.__version__),
    )
