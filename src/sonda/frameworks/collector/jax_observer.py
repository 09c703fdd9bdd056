"""Makes the jitted functions of a JAX program announce their calls, and changes nothing that they compute.

`jax.jit` gives a function that stands before JAX's own. An outermost call of it is a phase: `fused` where gradients
were taken while it was traced (forward, backward and mostly the update in one function), `optimizer` where it gives
arrays of the shapes that such a function gives (an update by itself), `forward` otherwise. A gradient that the program
takes outside of any jitted function is `fused` too. JAX hands work over and runs ahead: an observed call is waited for,
so that its time is that of its work. A call in which JAX traced and compiled holds a `compile` span, and the step
around it is of the pass `warmup`. A function that is given none of what others learn (an augmentation) is a helper, and
no phase; what is called before the first function that learns is held back until that one tells.
"""

from __future__ import annotations

import os
import threading
import types
from collections import Counter
from functools import partial
from time import perf_counter_ns as now
from typing import Any

from .keras_cost import costs
from .replacing import Replacing
from .traces import Function, Traces, code_place
from .watch import Observed, Watch, watch_process

COMPILING = "/jax/core/compile/"
"""What JAX's own events about tracing, lowering and compiling begin with."""
GRADIENTS = ("grad", "value_and_grad", "vjp", "linearize")
MOST_HELD = 8
"""First calls that are held back at a time."""
ALIKE = 0.5
"""A function updates where it gives this share, by size, of what a function that takes gradients gives."""
LARGE = 2
"""Axes of arrays that are compared: a scalar or a vector has the shape of many others."""
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

    __slots__ = ("about", "arguments", "called", "given", "learns", "number", "static", "updates")

    def __init__(self, number: int, about: Function, arguments: tuple, static: set) -> None:
        self.number, self.about = number, about
        self.arguments = arguments
        """Names of those that have a place."""
        self.static = static
        """Names of those whose values are compiled in."""
        self.called = self.learns = self.updates = False
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


class JaxObserver(Replacing):
    """Replaces `jax.jit` and what takes gradients on `install`; `remove` puts everything back."""

    def __init__(self, watch: Watch, jax: Any) -> None:
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

    # ---- installing -------------------------------------------------------------------------------------------

    def install(self) -> None:
        from jax import monitoring
        from jax._src import core

        self.clean = core.trace_state_clean
        self.replace(self.jax, "jit", self._jit)
        for name in GRADIENTS:
            self.replace(self.jax, name, partial(self._differentiating, name=name))
        monitoring.register_event_duration_secs_listener(self._compiling)
        self.on = True

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
        about = self.traces.function(str(getattr(fun, "__name__", "function")), code_place(fun))
        names = _arguments(fun)
        places = _several(kwargs.get("static_argnums"), int)
        static = {names[place] for place in places if -len(names) <= place < len(names)}
        return _Known(self._made, about, names, static.union(_several(kwargs.get("static_argnames"), str)))

    @property
    def off(self) -> bool:
        return not self.on or self.recorder.off or self.watch.schedule.over

    def call(self, function: Any, known: _Known, args: tuple, kwargs: dict) -> Any:
        """A call of a jitted function: observed where it is outermost and nothing is traced around it."""
        if self.off or self.mine.depth or not self.clean():
            return function(*args, **kwargs)
        stream = self.recorder.stream()
        if stream.phases:  # of a layer or a loop of Keras': a part of that phase
            return function(*args, **kwargs)
        return self._run(stream, known, lambda: function(*args, **kwargs), (args, kwargs))

    def _phase(self, known: _Known) -> int | None:
        """The code of the phase that a call is; None for a helper's."""
        if known.learns or known.updates:
            return int(self.watch.phases.codes["fused" if known.learns else "optimizer"])
        if self._learnt and not self.watch.loops.running and not known.given & self._learnt:
            return None
        return int(self.watch.phases.codes["forward"])

    def _run(self, stream: Any, known: _Known, work: Any, given: tuple) -> Any:
        mine, about = self.mine, known.about
        mine.depth, mine.compiled_at, mine.learns = 1, 0, False
        # What a function is, is known once it was traced: only then its first call can be written.
        first, known.called = not known.called, True
        code = None
        if not first:
            self._release()
            code = self._phase(known)
            if code is not None:
                stream.begin(code, None)
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
                self._traced(known, given, result if done else None, compiled - begin, end - compiled)
            # A function that is made anew at one place of the program is the same one.
            learnt = (self._optimizer, id(about)) if known.learns else ()
            values = (*(learnt if done else (self._exhausted, 1)), *self.watch.loops.said())
            making = self._compile_events(about.name, begin, compiled, end) if compiled else ()
            if first:
                self._held.append((stream, known, begin, end, making, values, done))
                if self._learnt or known.learns or self.watch.loops.running or len(self._held) >= MOST_HELD:
                    self._release()
            else:
                stream.push(making)
            if code is not None:
                stream.push(values)
                stream.end()
                if done and not known.updates:
                    self._stepped()

    def _release(self) -> None:
        """Write the first calls that were held back, as what is known of their functions by now."""
        while self._held:
            stream, known, begin, end, making, values, done = self._held.pop(0)
            code = self._phase(known)
            if code is None:
                stream.push(making)
                continue
            stream.push((code, begin, *making, *values, code + 1, end))
            self.recorder.breathe(stream, end)
            if done and not known.updates:
                self._stepped()

    def announced(self) -> int:
        """Steps so far, with what was held back."""
        self._release()
        return self.steps

    def _stepped(self) -> None:
        if not self.steps:
            self.watch.schedule.notes.append(WAITED)
        self.steps += 1
        self.watch.stepped(now())

    def _compile_events(self, name: str, begin: int, compiled: int, end: int) -> tuple:
        code = self.recorder.define(kind="compile", name=name)
        return (self._warmup, begin, code, begin, code + 1, compiled, self._warmup + 1, end)

    def _traced(self, known: _Known, given: tuple, result: Any, lasted: int, run: int) -> None:
        """A call in which JAX traced and compiled for `lasted` ns: why, and what kind of function it is."""
        try:
            signature = self._signature(known, *given)
        except Exception:  # of an argument that cannot be written, or is no tree
            signature = {}
        self.traces.traced(known.about, known.number, signature, lasted, run)
        known.given |= frozenset(self._shapes(given))
        shapes = self._shapes(result)
        if self.mine.learns or known.learns:
            known.learns = True
            self._gradients = shapes
            self._learnt.update(shapes)
        elif not known.learns:
            known.updates = _size(shapes & self._gradients) > ALIKE * _size(self._gradients) > 0

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
        return self._run(stream, known, lambda: made(*args, **kwargs), (args, kwargs))

    # ---- arguments --------------------------------------------------------------------------------------------

    def _signature(self, known: _Known, args: tuple, kwargs: dict) -> dict:
        """What JAX compiles for: shapes and types of arrays, values of static arguments."""
        found: dict = {}
        further = [f"argument {number + 1}" for number in range(len(known.arguments), len(args))]
        for name, value in [*zip((*known.arguments, *further), args, strict=False), *kwargs.items()]:
            self._describe(name, value, name in known.static, found)
        return found

    def _describe(self, name: str, value: Any, static: bool, found: dict) -> None:
        if static:
            found[name] = ("python", repr(value)[:200])
            return
        tree = self.jax.tree_util
        for path, leaf in tree.tree_flatten_with_path(value)[0]:
            shape, kind = getattr(leaf, "shape", ()), getattr(leaf, "dtype", type(leaf).__name__)
            found[name + tree.keystr(path)] = ("tensor", f"{kind}[{', '.join(map(str, shape))}]")

    def _shapes(self, result: Any) -> Counter:
        """How often each shape and type is among the larger arrays of a result."""
        leaves = self.jax.tree_util.tree_leaves(result)
        return Counter(
            (tuple(leaf.shape), str(leaf.dtype)) for leaf in leaves if len(getattr(leaf, "shape", ())) >= LARGE
        )


def _size(shapes: Counter) -> int:
    """Elements of arrays of these shapes."""
    total = 0
    for (shape, _), count in shapes.items():
        elements = count
        for side in shape:
            elements *= side
        total += elements
    return total


def _several(value: Any, one: type) -> tuple:
    if value is None:
        return ()
    return (value,) if isinstance(value, one) else tuple(value)


def _arguments(fun: Any) -> tuple:
    """Names of a function's arguments that have a place; () where it does not tell. A method has its object already."""
    code = getattr(getattr(fun, "__wrapped__", fun), "__code__", None)
    given = int(hasattr(fun, "__self__"))
    return tuple(code.co_varnames[given : code.co_argcount]) if code is not None else ()


def _named(original: Any, wrapper: Any) -> Any:
    for attribute in ("__name__", "__qualname__", "__doc__", "__module__", "__wrapped__"):
        value = getattr(original, attribute, None)
        if value is not None:
            setattr(wrapper, attribute, value)
    return wrapper


def thread_count() -> int:
    """Threads of JAX's pool on a processor."""
    text = os.environ.get("PJRT_NPROC", "")
    return int(text) if text.isdigit() and int(text) else len(os.sched_getaffinity(0))


def observe_jax(jax: Any, settings: dict, counting: Any = None) -> None:
    """Observe JAX in this process until it ends, with counters that are open already."""
    watch = watch_process(settings, counting)
    observer = JaxObserver(watch, jax)
    observer.install()

    def facts() -> dict:
        traced = observer.traces.facts()
        return {"traced": traced} if traced else {}

    watch.add(
        Observed("jax", observer.remove, observer.announced, thread_count, costs, facts),
        jax=str(jax.__version__),
    )
