"""Makes TensorFlow announce its phases, and changes nothing that it computes.

Phases: data (the program itself fetches a batch from tf.data), forward (a gradient tape records), backward (a tape's
gradient), fused (a call of a `tf.function` that learns: forward, backward and optimizer in one graph, with the input
where the graph fetches it). A call of a `tf.function` that does not learn is a forward too. Tracing is a `compile` span
inside such a call, compiling by XLA another one, and the step around them is of the pass `warmup`.
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
from ...collector.traces import FunctionTraces, Traces, code_place
from ...collector.watch import ObservedFramework, ProcessWatch, watch_process
from .data import Datasets
from .fetches import GraphFetches
from .graph_pass import GraphPass
from .keras_batches import KerasBatches
from .tracing import Trace, XlaShapes, add_xla, signature_of

FETCH_OPERATIONS = ("IteratorGetNext", "MultiDeviceIteratorGetNext", "ReduceDataset", "AnonymousIterator")
"""How the names of operations begin that fetch batches in a graph."""
OWN_ITERATOR = "it is given no iterator, and has one of its own or one for several devices"
MANUAL_OPTIMIZER = -1
"""Stands for the optimizer of a program that seems to update its weights itself: its steps end with a backward."""

WORTH_COUNTING = 8_000_000
"""The least length of a phase that is counted, ns. TensorFlow has a dozen threads; reading their counters takes 0.15 ms
at both ends of a phase, 2 % of this."""


class _ThreadState(threading.local):
    """What the calling thread is doing."""

    depth = 0
    """Functions whose call is running; calls inside them are a part of it."""
    tracing: Any = None
    """The trace that is being made, or None."""
    tapes: int = 0
    """The number of tapes that record."""


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
        self.thread = _ThreadState()
        self.steps = 0
        self.optimizers = 0
        """The number of optimizer steps outside of graphs."""
        self.loops = watch.loops
        super().__init__()
        self._traits: dict = {}
        """By the number of a function: (learns, has weights)."""
        self._numbers: Any = weakref.WeakKeyDictionary()
        """Numbers of functions, iterators and data sets: their addresses may be used again."""
        self._last_number = 0
        self._histories: dict = {}
        """By the number of a function and the loop that runs it: its calls and traces."""
        self._has_model = False
        self._trace_being_made: Trace | None = None
        """The trace that any thread is making: strategies make the graphs of replicas in other threads."""
        define = self.recorder.define
        self.codes = {**watch.phases.codes, "data": define(kind="phase", name="data")}
        names = ("optimizer", "loader", "iterator", "exhausted", "training", "helper", "fetch")
        self.values = {name: define(kind="value", quantity=name, source="counted") for name in names}
        self._warmup = define(kind="pass", name="warmup")
        self.graph = GraphPass(self.recorder, tf, watch.schedule.profile, watch.schedule.replay)
        self.fetches = GraphFetches(self.recorder, lambda note: watch.schedule.notes.append(note))

    # ---- installing -------------------------------------------------------------------------------------------

    def install(self) -> None:
        from tensorflow.python.data.ops import iterator_ops
        from tensorflow.python.eager import backprop, context
        from tensorflow.python.eager.polymorphic_function import polymorphic_function, tracing_compilation
        from tensorflow.python.profiler import profiler_v2

        self.eagerly = context.executing_eagerly
        self.replace(polymorphic_function.Function, "__call__", self._wrap_function)
        self.replace(tracing_compilation, "_create_concrete_function", self._wrap_tracing)
        self.replace(backprop.GradientTape, "__enter__", self._wrap_tape_enter)
        self.replace(backprop.GradientTape, "__exit__", self._wrap_tape_exit)
        self.replace(backprop.GradientTape, "gradient", self._wrap_gradient)
        self.replace(iterator_ops.OwnedIterator, "_next_internal", self._wrap_next)
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
        """A phase of this thread, with values (code, number, ...) that describe it."""
        stream = self.recorder.stream()
        stream.begin(self.codes[name], None)
        try:
            yield
        finally:
            stream.push((*values, *self.loops.phase_values()))
            stream.end()

    def count_step(self) -> None:
        """Count a step, which is over."""
        self.steps += 1
        self.watch.end_step(now())
        if self.watch.schedule.over:
            self.graph.stop()

    def number(self, value: Any) -> int:
        """A number that no other object has."""
        try:
            known = self._numbers.get(value)
            if known is None:
                self._last_number += 1
                known = self._numbers[value] = self._last_number
        except TypeError:
            return id(value)
        return int(known)

    # ---- functions --------------------------------------------------------------------------------------------

    def _wrap_function(self, original: Any) -> Any:
        thread = self.thread

        def call(function: Any, *args: Any, **kwargs: Any) -> Any:
            if thread.depth or self.off or not self.eagerly() or function._run_functions_eagerly:
                return original(function, *args, **kwargs)
            return self._call_function(original, function, args, kwargs)

        return call

    def _call_function(self, original: Any, function: Any, args: tuple, kwargs: dict) -> Any:
        """Run an outermost call, and write it as a phase where it belongs to a step."""
        thread, stream = self.thread, self.recorder.stream()
        identity = self.number(function)
        traits = self._traits.get(identity)
        # What a function does is known once it was traced: the phase of its first call is written afterwards.
        first = traits is None
        name = self._phase_of(traits)
        history = self._history(function, identity)
        thread.depth, thread.tracing = 1, None
        inside = bool(stream.phases)  # of a tape or a layer, whose phase it is a part of
        shapes = self.shapes.new_signature(identity, function, args, kwargs) if function._jit_compile else None
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
            thread.depth = 0
            history.calls += 1
            history.call_ns += end - begin
            trace, thread.tracing = thread.tracing, None
            if trace is not None or first:
                traits = self._note_traits(function, identity, trace)
            xla = function._jit_compile
            if not xla and self.loops.running:
                xla, shapes = self.batches.batch_of_call(identity, function, done)
            trace = add_xla(history, trace, shapes, xla and self.recorder, begin, end)
            if first and not inside:
                name = self._phase_of(traits)
                stream.push((self.codes[name], begin) if name else ())
            if trace is not None:
                self.traces.add_trace(history, identity, trace.signature, trace.lasted, end - begin - trace.lasted)
                stream.push((self._warmup, begin, *trace.compiled, self._warmup + 1, end))
            elif name and not inside and not profiled and self.graph.pop_settling():
                stream.push((self._warmup, begin, self._warmup + 1, end))
            if name and not inside:
                arguments = (*args, *kwargs.values())
                stream.push(self._fetch_values(function, arguments, begin, end, trace is not None, done))
                self._end_call(stream, identity, traits, done, end if first else 0)
            if profiled:
                stream.push((self.graph.code + 1, now()))
                self.graph.note_call(identity, function, begin, trace is not None or not done)

    def _end_call(self, stream: Any, identity: int, traits: Any, done: bool, end: int) -> None:
        """End the phase of a call; of a first call at `end`. A failed call is no step: perhaps its data ended."""
        if not done:
            stream.push((self.values["exhausted"], 1))
        elif traits[0]:
            stream.push((self.values["optimizer"], identity))
        elif not traits[1] and not self.loops.running:
            stream.push((self.values["helper"], 1))
        stream.push(self.loops.phase_values())
        if end:
            stream.push((self.codes[self._phase_of(traits)] + 1, end))
            self.recorder.flush_if_due(stream, end)
        else:
            stream.end()
        if done:
            self.count_step()

    def _fetch_values(self, function: Any, values: tuple, begin: int, end: int, traced: bool, done: bool) -> tuple:
        """Values that describe the batches which a graph fetched itself, from an iterator that it was given or has."""
        iterator = next((value for value in values if hasattr(value, "_iterator_resource")), None)
        if iterator is None:
            if traced and fetches_itself(function):
                self.fetches.note_unknown(OWN_ITERATOR)
            return ()
        data, numbers = self._introduce(iterator)
        try:
            fetch = self.fetches.note_call(iterator, iterator._iterator_resource, data, begin, end, traced, done)
        except Exception:
            report_failure(self.recorder.directory)
            return ()
        return (self.values["fetch"], fetch, *(() if self.loops.running else numbers))

    def _introduce(self, iterator: Any) -> tuple:
        """The number of an iterator's loader, and the values that name both."""
        if self.loops.running:
            return self.loops.running[-1].loader, self.loops.phase_values()
        dataset = getattr(iterator, "_dataset", iterator)
        loader = self.datasets.introduce(self.number(dataset), dataset)
        return loader, (self.values["loader"], loader, self.values["iterator"], self.number(iterator))

    def _phase_of(self, traits: tuple | None) -> str:
        """The phase of a call; '' for none. A function without weights is a helper where others have weights.

        Before others are known its calls are phases, which a value marks as those of a possible helper.
        """
        if traits is None:
            return ""
        learns, weights = traits
        if learns:
            return "fused"
        return "forward" if weights or self.loops.running or not self._has_model else ""

    def _note_traits(self, function: Any, identity: int, trace: Trace | None) -> tuple:
        """Note what a call tells of its function: whether it learns, and whether it has weights."""
        if trace is None:  # its graphs were made before it was called
            graphs = [(made.graph, made.trainable_variables) for made in function._list_all_concrete_functions()]
            learns = any("gradient_tape" in op.name for graph, _ in graphs for op in graph.get_operations())
            traits = (learns, any(bool(variables) for _, variables in graphs))
        else:
            before = self._traits.get(identity, (False, False))
            traits = (before[0] or trace.learns, before[1] or trace.variables)
        self._traits[identity] = traits
        self._has_model = self._has_model or any(traits)
        return traits

    def _history(self, function: Any, identity: int) -> FunctionTraces:
        """Calls and traces of a `tf.function`; those that Keras makes are kept by the loop that runs them."""
        loop = self.loops.running[-1].name if self.loops.running else ""
        history = self._histories.get((identity, loop))
        if history is None:
            place = code_place(getattr(function, "_python_function", None))
            name = str(getattr(function, "_name", "")) or "function"
            if loop and place.startswith("trainer.py:"):
                name, place = f"the {loop} function of Keras", ""
            history = self._histories[identity, loop] = self.traces.find_function(name, place)
        return history

    def _wrap_tracing(self, original: Any) -> Any:
        """A wrapper of tracing, which makes a graph: once or twice in the first call, and again for other arguments."""
        thread = self.thread

        def trace_function(function_type: Any, type_context: Any, func_graph: Any, tracing_options: Any) -> Any:
            arguments = (function_type, type_context, func_graph, tracing_options)
            depth = thread.depth
            if depth > 1 or self.off or not self.eagerly():
                return original(*arguments)
            trace = thread.tracing or Trace()
            if depth:
                thread.tracing = trace
            code = self.recorder.define(kind="compile", name=str(tracing_options.name))
            thread.depth, self._trace_being_made = 2, trace
            begin = now()
            try:
                concrete = original(*arguments)
                trace.variables = trace.variables or bool(concrete.trainable_variables)
                return concrete
            finally:
                end = now()
                thread.depth, self._trace_being_made = depth, None
                trace.lasted += end - begin
                trace.signature = signature_of(function_type)
                trace.compiled += (code, begin, code + 1, end)
                if not depth:  # traced without a call
                    self.recorder.stream().push(trace.compiled)

        return trace_function

    # ---- tapes ------------------------------------------------------------------------------------------------

    def note_gradient(self) -> None:
        """Note that gradients are taken in the graph that is being made."""
        trace = self.thread.tracing or self._trace_being_made
        if trace is not None:
            trace.learns = True

    def _wrap_tape_enter(self, original: Any) -> Any:
        thread = self.thread

        def enter(tape: Any) -> Any:
            result = original(tape)
            # In a loop of Keras the layers tell where the forward is.
            if thread.depth or self.off or self.loops.running or not self.eagerly():
                return result
            if not thread.tapes:
                self.recorder.stream().begin(self.codes["forward"], None)
            thread.tapes += 1
            return result

        return enter

    def _wrap_tape_exit(self, original: Any) -> Any:
        thread = self.thread

        def leave(tape: Any, kind: Any, value: Any, traceback: Any) -> Any:
            try:
                return original(tape, kind, value, traceback)
            finally:
                if thread.tapes and not thread.depth:
                    thread.tapes -= 1
                    if not thread.tapes:
                        self.close("forward", (self.values["training"], 1, *self.loops.phase_values()))

        return leave

    def close(self, name: str, values: tuple = ()) -> None:
        """Close the phase of this name, and whatever an exception left open inside it."""
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

    def _wrap_gradient(self, original: Any) -> Any:
        thread = self.thread

        def gradient(*args: Any, **kwargs: Any) -> Any:
            if thread.depth or not self.eagerly():
                self.note_gradient()
            if thread.depth or self.off or not self.eagerly():
                return original(*args, **kwargs)
            optimizer_values = () if self.optimizers or thread.tapes else (self.values["optimizer"], MANUAL_OPTIMIZER)
            with self.phase("backward", *optimizer_values):
                result = original(*args, **kwargs)
            if optimizer_values:
                self.count_step()
            return result

        return gradient

    # ---- data -------------------------------------------------------------------------------------------------

    def _wrap_next(self, original: Any) -> Any:
        thread = self.thread

        def fetch(iterator: Any) -> Any:
            if thread.depth or self.off or self.recorder.stream().phases or not self.eagerly():
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
        graphs = [made.graph for made in function._list_all_concrete_functions()]
        return any(op.type.startswith(FETCH_OPERATIONS) for graph in graphs for op in graph.get_operations())
    except Exception:  # a function of another kind
        return False


def thread_count(tf: Any) -> int:
    """Threads that one operation may use; by default TensorFlow takes all processors."""
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
