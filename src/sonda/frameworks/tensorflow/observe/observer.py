"""Makes TensorFlow announce its phases, and changes nothing that it computes.

Phases: data (a batch that the program itself fetches from tf.data), forward (what a gradient tape records), backward
(a tape's gradient), fused (a call of a `tf.function` that learns: forward, backward and optimizer in one graph,
input too where the graph fetches it), forward again (a call of one that does not learn). Tracing is a `compile` span
inside such a call, what XLA compiles another, and the step around them is of the pass `warmup`.
"""

from __future__ import annotations

import os
import threading
import weakref
from contextlib import contextmanager
from time import perf_counter_ns as now
from typing import Any

from ...collector.failure import report_failure
from ...collector.patches import PatchingObserver
from ...collector.traces import TracedFunction, Traces, code_place
from ...collector.watch import ObservedFramework, ProcessWatch, watch_process
from .data import Datasets
from .fetches import Fetches
from .graph_pass import GraphPass
from .keras_batches import KerasBatches
from .tracing import Trace, XlaShapes, made_in, signature_of

FETCHING = ("IteratorGetNext", "MultiDeviceIteratorGetNext", "ReduceDataset", "AnonymousIterator")
"""How operations of graphs begin that fetch batches."""
OWN_ITERATOR = "it is given no iterator, and has one of its own or one for several devices"
MANUAL = -1
"""The optimizer of a program that updates its weights itself, as far as is known: its steps end with a backward."""

WORTH_COUNTING = 8_000_000
"""ns. TensorFlow has a dozen threads, and what the operating system counts of all of them takes 0.15 ms to read at both
ends of a phase: 2 % of this."""


class _Mine(threading.local):
    """Of the calling thread."""

    depth = 0
    """Functions whose call is running; what they call in turn is a part of it."""
    tracing: Any = None
    """The trace that is being made, or None."""
    tapes: int = 0
    """Tapes that record."""


class TensorflowObserver(PatchingObserver):
    """Patches TensorFlow on `install`; `remove` puts everything back."""

    def __init__(self, watch: ProcessWatch, tf: Any) -> None:
        self.watch = watch
        self.tf = tf
        self.recorder = watch.recorder
        watch.phases.worth = WORTH_COUNTING
        self.traces = Traces()
        self.shapes = XlaShapes(tf.nest)
        self.batches, self.datasets = KerasBatches(), Datasets(self.recorder)
        self.mine = _Mine()
        self.steps = 0
        self.optimizers = 0
        """Steps of optimizers that were seen outside graphs."""
        self.loops = watch.loops
        super().__init__()
        self._known: dict = {}
        """By the number of a function: (learns, has weights)."""
        self._numbers: Any = weakref.WeakKeyDictionary()
        """Of functions, iterators and data sets: addresses are given again to others."""
        self._last = 0
        self._places: dict = {}
        """By the number of a function and the loop that runs it: what is kept of it."""
        self._model_seen = False
        self._making: Trace | None = None
        """The trace that is being made in any thread: strategies make the graphs of their replicas in others."""
        define = self.recorder.define
        self.codes = {**watch.phases.codes, "data": define(kind="phase", name="data")}
        names = ("optimizer", "loader", "iterator", "exhausted", "training", "helper", "fetch")
        self.values = {name: define(kind="value", quantity=name, source="counted") for name in names}
        self._warmup = define(kind="pass", name="warmup")
        self.graph = GraphPass(self.recorder, tf, watch.schedule.profile, watch.schedule.replay)
        self.fetches = Fetches(self.recorder, lambda note: watch.schedule.notes.append(note))

    # ---- installing -------------------------------------------------------------------------------------------

    def install(self) -> None:
        from tensorflow.python.data.ops import iterator_ops
        from tensorflow.python.eager import backprop, context
        from tensorflow.python.eager.polymorphic_function import polymorphic_function, tracing_compilation
        from tensorflow.python.profiler import profiler_v2

        self.eagerly = context.executing_eagerly
        self.replace(polymorphic_function.Function, "__call__", self._function)
        self.replace(tracing_compilation, "_create_concrete_function", self._tracing)
        self.replace(backprop.GradientTape, "__enter__", self._enter_tape)
        self.replace(backprop.GradientTape, "__exit__", self._exit_tape)
        self.replace(backprop.GradientTape, "gradient", self._gradient)
        self.replace(iterator_ops.OwnedIterator, "_next_internal", self._next)
        for owner in (profiler_v2, self.tf.profiler.experimental):
            self.replace(owner, "start", self.graph.wrap_start)
        self.on = True

    def remove(self) -> None:
        self.graph.stop()
        super().remove()

    # ---- phases -----------------------------------------------------------------------------------------------

    @property
    def off(self) -> bool:
        return not self.on or self.recorder.off or self.watch.schedule.over

    @contextmanager
    def phase(self, name: str, *values: int) -> Any:
        """A phase of this thread, with values (code, number, ...) that say what it is."""
        stream = self.recorder.stream()
        stream.begin(self.codes[name], None)
        try:
            yield
        finally:
            stream.push((*values, *self.loops.phase_values()))
            stream.end()

    def stepped(self) -> None:
        """A step is over."""
        self.steps += 1
        self.watch.end_step(now())
        if self.watch.schedule.over:
            self.graph.stop()

    def number(self, one: Any) -> int:
        """A number that no other object has."""
        try:
            found = self._numbers.get(one)
            if found is None:
                self._last += 1
                found = self._numbers[one] = self._last
        except TypeError:
            return id(one)
        return int(found)

    # ---- functions --------------------------------------------------------------------------------------------

    def _function(self, original: Any) -> Any:
        mine = self.mine

        def call(function: Any, *args: Any, **kwargs: Any) -> Any:
            if mine.depth or self.off or not self.eagerly() or function._run_functions_eagerly:
                return original(function, *args, **kwargs)
            return self._call(original, function, args, kwargs)

        return call

    def _call(self, original: Any, function: Any, args: tuple, kwargs: dict) -> Any:
        """An outermost call: a phase, where it is one of a step."""
        mine, stream = self.mine, self.recorder.stream()
        identity = self.number(function)
        known = self._known.get(identity)
        # What a function is, is known once it was traced: only then its first call can be written.
        first = known is None
        name = self._phase_of(known)
        about = self._about(function, identity)
        mine.depth, mine.tracing = 1, None
        inside = bool(stream.phases)  # of a tape, or of a layer: a part of that phase
        shapes = self.shapes.anew(identity, function, args, kwargs) if function._jit_compile else None
        self.graph.comes(identity)
        profiled = name == "fused" and not inside and self.graph.begin_call(identity, function, args, kwargs)
        if profiled:
            stream.push((self.graph.code, now()))
        else:
            self.graph.end_if_late()
        if name and not inside:
            stream.begin(self.codes[name], None)
        done = False
        begin = now()
        try:
            result = original(function, *args, **kwargs)
            done = True
            return result
        finally:
            end = now()
            mine.depth = 0
            about.calls += 1
            about.call_ns += end - begin
            trace, mine.tracing = mine.tracing, None
            if trace is not None or first:
                known = self._learn(function, identity, trace)
            xla = function._jit_compile
            if not xla and self.loops.running:
                xla, shapes = self.batches.taken(identity, function, done)
            trace = made_in(about, trace, shapes, xla and self.recorder, begin, end)
            if first and not inside:
                name = self._phase_of(known)
                stream.push((self.codes[name], begin) if name else ())
            if trace is not None:
                self.traces.add_trace(about, identity, trace.signature, trace.lasted, end - begin - trace.lasted)
                stream.push((self._warmup, begin, *trace.compiled, self._warmup + 1, end))
            elif name and not inside and not profiled and self.graph.pop_settling():
                stream.push((self._warmup, begin, self._warmup + 1, end))
            if name and not inside:
                stream.push(self._fetched(function, (*args, *kwargs.values()), begin, end, trace is not None, done))
                self._close_call(stream, identity, known, done, end if first else 0)
            if profiled:
                stream.push((self.graph.code + 1, now()))
                self.graph.called(identity, function, begin, trace is not None or not done)

    def _close_call(self, stream: Any, identity: int, known: Any, done: bool, end: int) -> None:
        """End the phase of a call, of a first one at `end`. One that failed, for want of data perhaps, is no step."""
        if not done:
            stream.push((self.values["exhausted"], 1))
        elif known[0]:
            stream.push((self.values["optimizer"], identity))
        elif not known[1] and not self.loops.running:
            stream.push((self.values["helper"], 1))
        stream.push(self.loops.phase_values())
        if end:
            stream.push((self.codes[self._phase_of(known)] + 1, end))
            self.recorder.flush_if_due(stream, end)
        else:
            stream.end()
        if done:
            self.stepped()

    def _fetched(self, function: Any, values: tuple, begin: int, end: int, traced: bool, done: bool) -> tuple:
        """What a call says of the batches that its graph fetched itself, where it was given an iterator or has one."""
        iterator = next((one for one in values if hasattr(one, "_iterator_resource")), None)
        if iterator is None:
            if traced and fetches_itself(function):
                self.fetches.tell_unknown(OWN_ITERATOR)
            return ()
        data, numbers = self._introduce(iterator)
        try:
            fetch = self.fetches.called(iterator, iterator._iterator_resource, data, begin, end, traced, done)
        except Exception:
            report_failure(self.recorder.directory)
            return ()
        return (self.values["fetch"], fetch, *(() if self.loops.running else numbers))

    def _introduce(self, iterator: Any) -> tuple:
        """The number of the loader that an iterator is of, and the values that name both."""
        if self.loops.running:
            return self.loops.running[-1].loader, self.loops.phase_values()
        dataset = getattr(iterator, "_dataset", iterator)
        data = self.datasets.introduce(self.number(dataset), dataset)
        return data, (self.values["loader"], data, self.values["iterator"], self.number(iterator))

    def _phase_of(self, known: tuple | None) -> str:
        """The phase that a call is; '' for none. A function without weights is a helper where others have some: those
        that are called before are said to be, for whoever reads what came afterwards."""
        if known is None:
            return ""
        learns, weights = known
        if learns:
            return "fused"
        return "forward" if weights or self.loops.running or not self._model_seen else ""

    def _learn(self, function: Any, identity: int, trace: Trace | None) -> tuple:
        """What a call has told of its function: whether it learns, and whether it has weights."""
        if trace is None:  # its graphs were made before it was called
            made = [(one.graph, one.trainable_variables) for one in function._list_all_concrete_functions()]
            learns = any("gradient_tape" in one.name for graph, _ in made for one in graph.get_operations())
            found = (learns, any(bool(variables) for _, variables in made))
        else:
            before = self._known.get(identity, (False, False))
            found = (before[0] or trace.learns, before[1] or trace.variables)
        self._known[identity] = found
        self._model_seen = self._model_seen or any(found)
        return found

    def _about(self, function: Any, identity: int) -> TracedFunction:
        """What is kept of a `tf.function`; of those that Keras makes, by the loop that runs them."""
        loop = self.loops.running[-1].name if self.loops.running else ""
        found = self._places.get((identity, loop))
        if found is None:
            place = code_place(getattr(function, "_python_function", None))
            name = str(getattr(function, "_name", "")) or "function"
            if loop and place.startswith("trainer.py:"):
                name, place = f"the {loop} function of Keras", ""
            found = self._places[identity, loop] = self.traces.find_function(name, place)
        return found

    def _tracing(self, original: Any) -> Any:
        """A graph is made of a function: once or twice in the first call, and again for other arguments."""
        mine = self.mine

        def traced(function_type: Any, type_context: Any, func_graph: Any, tracing_options: Any) -> Any:
            words = (function_type, type_context, func_graph, tracing_options)
            depth = mine.depth
            if depth > 1 or self.off or not self.eagerly():
                return original(*words)
            trace = mine.tracing or Trace()
            if depth:
                mine.tracing = trace
            code = self.recorder.define(kind="compile", name=str(tracing_options.name))
            mine.depth, self._making = 2, trace
            begin = now()
            try:
                made = original(*words)
                trace.variables = trace.variables or bool(made.trainable_variables)
                return made
            finally:
                end = now()
                mine.depth, self._making = depth, None
                trace.lasted += end - begin
                trace.signature = signature_of(function_type)
                trace.compiled += (code, begin, code + 1, end)
                if not depth:  # it is made without being called
                    self.recorder.stream().push(trace.compiled)

        return traced

    # ---- tapes ------------------------------------------------------------------------------------------------

    def learning(self) -> None:
        """Gradients are taken in the graph that is being made."""
        trace = self.mine.tracing or self._making
        if trace is not None:
            trace.learns = True

    def _enter_tape(self, original: Any) -> Any:
        mine = self.mine

        def enter(tape: Any) -> Any:
            result = original(tape)
            # In a loop of Keras' own the layers say where the forward is.
            if mine.depth or self.off or self.loops.running or not self.eagerly():
                return result
            if not mine.tapes:
                self.recorder.stream().begin(self.codes["forward"], None)
            mine.tapes += 1
            return result

        return enter

    def _exit_tape(self, original: Any) -> Any:
        mine = self.mine

        def leave(tape: Any, kind: Any, value: Any, traceback: Any) -> Any:
            try:
                return original(tape, kind, value, traceback)
            finally:
                if mine.tapes and not mine.depth:
                    mine.tapes -= 1
                    if not mine.tapes:
                        self.close("forward", (self.values["training"], 1, *self.loops.phase_values()))

        return leave

    def close(self, name: str, values: tuple = ()) -> None:
        """Close the phase of this name, and what an exception left open inside it."""
        stream = self.recorder.stream()
        code = self.codes[name]
        if not any(phase[0] == code for phase in stream.phases):
            return
        while stream.phases:
            opened = stream.phases[-1][0]
            if opened == code:
                stream.push(values)
            stream.end()
            if opened == code:
                return

    def _gradient(self, original: Any) -> Any:
        mine = self.mine

        def gradient(*args: Any, **kwargs: Any) -> Any:
            if mine.depth or not self.eagerly():
                self.learning()
            if mine.depth or self.off or not self.eagerly():
                return original(*args, **kwargs)
            ending = () if self.optimizers or mine.tapes else (self.values["optimizer"], MANUAL)
            with self.phase("backward", *ending):
                result = original(*args, **kwargs)
            if ending:
                self.stepped()
            return result

        return gradient

    # ---- data -------------------------------------------------------------------------------------------------

    def _next(self, original: Any) -> Any:
        mine = self.mine

        def fetch(iterator: Any) -> Any:
            if mine.depth or self.off or self.recorder.stream().phases or not self.eagerly():
                return original(iterator)
            stream = self.recorder.stream()
            stream.begin(self.codes["data"], None)
            done = False
            try:
                result = original(iterator)
                done = True
                return result
            finally:
                data, numbers = self._introduce(iterator)
                stream.push(numbers)
                if not done:
                    stream.push((self.values["exhausted"], 1))
                stream.end()
                self.fetches.follow(iterator, iterator._iterator_resource, data, not done)

        return fetch


def fetches_itself(function: Any) -> bool:
    """Whether a graph of a `tf.function` fetches batches."""
    try:
        made = function._list_all_concrete_functions()
        return any(one.type.startswith(FETCHING) for each in made for one in each.graph.get_operations())
    except Exception:  # of a function that is another's
        return False


def thread_count(tf: Any) -> int:
    """Threads that one operation may use; TensorFlow takes all processors where it was not told."""
    return int(tf.config.threading.get_intra_op_parallelism_threads()) or len(os.sched_getaffinity(0))


def observe_tensorflow(tf: Any, settings: dict, counting: Any = None) -> None:
    """Observe TensorFlow in this process until it ends, with counters that are open already."""
    from ...collector.overhead import measure_recording_costs

    watch = watch_process(settings, counting)
    observer = TensorflowObserver(watch, tf)
    observer.install()

    def facts() -> dict:
        observer.graph.stop()
        traced = observer.traces.facts()
        return {**({"traced": traced} if traced else {}), **observer.graph.facts(), **observer.fetches.facts()}

    observed = ObservedFramework(
        "tensorflow", observer.remove, lambda: observer.steps, lambda: thread_count(tf), measure_recording_costs, facts
    )
    watch.tensorflow = observer
    watch.add(observed, tensorflow=str(tf.__version__))
