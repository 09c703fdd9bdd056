"""Makes Keras announce its layers, losses, optimizers and loops, on whichever framework it computes.

Models that Keras runs layer by layer (with PyTorch, or `run_eagerly`) are observed layer by layer. Compiled models are
one phase, which the framework's own observer sees. `fit`, `evaluate` and `predict` tell the part and epoch of a step.
"""

from __future__ import annotations

import threading
import weakref
from contextlib import contextmanager, suppress
from time import perf_counter_ns as now
from typing import Any

from ...collector.overhead import measure_recording_costs
from ...collector.patches import PatchingObserver
from ...collector.watch import ObservedFramework, ProcessWatch, watch_process
from .keras_input import BatchIterator, loading_of_adapter

SYMBOLIC_CLASS = "KerasTensor"
"""The class of symbolic tensors, with which Keras builds a model."""


class _ThreadState(threading.local):
    """What the calling thread is doing."""

    symbolic = 0
    """Running calls that build a model and compute nothing."""
    loss_class = ""
    """The class of the loss whose graph is being made; '' outside of a loss."""

    @contextmanager
    def inside_loss(self, target: Any) -> Any:
        """Operations that are made inside belong to this loss, or to an outer one; a trainer is no loss."""
        outer = self.loss_class
        if not outer and type(target).__name__.endswith("Loss"):
            self.loss_class = type(target).__name__
        elif not outer and not hasattr(target, "fit"):
            self.loss_class = f"{type(target).__name__}Loss"
        try:
            yield
        finally:
            self.loss_class = outer


class KerasObserver(PatchingObserver):
    """Patches Keras on `install`; `remove` puts everything back."""

    def __init__(self, watch: ProcessWatch, keras: Any) -> None:
        self.watch = watch
        self.keras = keras
        self.recorder = watch.recorder
        self.phases = watch.phases
        self.thread = _ThreadState()
        self.steps = 0
        super().__init__()
        self._codes: dict = {}
        """By the code of the outer layer and the identity of a layer: a weak reference to the layer, and its code."""
        self._names: dict = {}
        """By the code of the outer layer: how often each name occurs in it."""
        self._roots = 0
        self.loops = watch.loops
        define = self.recorder.define
        self.values = {
            name: define(kind="value", quantity=name, source="counted")
            for name in ("optimizer", "exhausted", "training")
        }

    @property
    def tensorflow(self) -> Any:
        """The observer of TensorFlow if Keras computes with it, else None."""
        return self.watch.tensorflow if self.backend == "tensorflow" else None

    # ---- installing -------------------------------------------------------------------------------------------

    def install(self) -> None:
        from keras.src.callbacks.callback_list import CallbackList
        from keras.src.layers.layer import Layer
        from keras.src.losses.loss import Loss
        from keras.src.optimizers.base_optimizer import BaseOptimizer
        from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter
        from keras.src.trainers.epoch_iterator import EpochIterator
        from keras.src.trainers.trainer import Trainer

        self.backend = str(self.keras.backend.backend())
        if self.backend == "tensorflow":
            from keras.src.backend.tensorflow.core import name_scope
            from keras.src.backend.tensorflow.trainer import TensorFlowTrainer
            from tensorflow.python.eager.context import executing_eagerly

            self._eagerly = executing_eagerly
            # Under a strategy it fetches a batch, which belongs to no step either.
            self.replace(TensorFlowTrainer, "_maybe_symbolic_build", self._wrap_building)
            self._kinds = ((Layer, "layer"), (BaseOptimizer, "optimizer"))
            self.replace(name_scope, "__enter__", self._wrap_scope)
            self.replace(PyDatasetAdapter, "_get_iterator", self._time_worker_batches)
        elif self.backend == "jax":
            from jax._src.core import trace_state_clean  # type: ignore[import-not-found,unused-ignore]
            from keras.src.backend.jax.trainer import JAXEpochIterator

            self._eagerly = trace_state_clean
            self.replace(JAXEpochIterator, "_get_iterator", self._time_jax_batches)
        else:
            self._eagerly = lambda: True
        if self.backend != "torch":
            # With PyTorch, layers are its modules, and its observer sees their backward too.
            self.replace(Layer, "__call__", self._wrap_layer)
        self.replace(Loss, "__call__", self._wrap_in_phase("loss"))
        self.replace(Trainer, "_compute_loss", self._wrap_in_phase("loss"))
        self.replace(Trainer, "_symbolic_build", self._wrap_building)
        self.replace(Trainer, "reset_metrics", self._wrap_reset)
        self.replace(BaseOptimizer, "apply", self._wrap_apply)
        self.replace(CallbackList, "on_epoch_begin", self._wrap_epoch_begin)
        self.replace(CallbackList, "on_train_begin", self._wrap_loop_begin("train", "train"))
        self.replace(CallbackList, "on_train_end", self._wrap_loop_end)
        self.replace(CallbackList, "on_test_begin", self._wrap_loop_begin("test", "test"))
        self.replace(CallbackList, "on_test_end", self._wrap_loop_end)
        self.replace(CallbackList, "on_predict_begin", self._wrap_loop_begin("predict", "test"))
        self.replace(CallbackList, "on_predict_end", self._wrap_loop_end)
        self.replace(EpochIterator, "__iter__", self._wrap_epoch_iterator)
        self.replace(EpochIterator, "__next__", self._wrap_fetch)
        self.on = True

    @property
    def _silent(self) -> bool:
        """Whether nothing is recorded here: observing is over, or a graph or a model is being made."""
        if not self.on or self.recorder.off or self.watch.schedule.over or self.thread.symbolic:
            return True
        return not self._eagerly() or (self.tensorflow is not None and bool(self.tensorflow.thread.depth))

    # ---- layers -----------------------------------------------------------------------------------------------

    def _wrap_layer(self, original: Any) -> Any:
        thread = self.thread

        def call(layer: Any, *args: Any, **kwargs: Any) -> Any:
            if self._silent:
                return original(layer, *args, **kwargs)
            if _is_symbolic(args) or (kwargs and _is_symbolic(tuple(kwargs.values()))):
                thread.symbolic += 1
                try:
                    return original(layer, *args, **kwargs)
                finally:
                    thread.symbolic -= 1
            stream = self.recorder.stream()
            if not stream.layers:
                return self._call_outermost(original, stream, layer, args, kwargs)
            return self._call_recorded(original, stream, layer, args, kwargs)

        return call

    def _call_outermost(self, original: Any, stream: Any, layer: Any, args: tuple, kwargs: dict) -> Any:
        """Call a layer that no other layer called: a forward, unless a phase is open already."""
        if stream.phases:
            return self._call_recorded(original, stream, layer, args, kwargs)
        stream.begin(self.phases.codes["forward"], None)
        try:
            return self._call_recorded(original, stream, layer, args, kwargs)
        finally:
            learns = bool(self.loops.running and self.loops.running[-1].part == "train")
            stream.push((self.values["training"], int(learns), *self.loops.phase_values()))
            stream.end()

    def _call_recorded(self, original: Any, stream: Any, layer: Any, args: tuple, kwargs: dict) -> Any:
        if not stream.detail:
            return original(layer, *args, **kwargs)
        code = self._layer_code(layer, stream.layers[-1] if stream.layers else -1)
        stream.layers.append(code)
        stream.push((code, now()))
        try:
            return original(layer, *args, **kwargs)
        finally:
            stream.push((code + 1, now()))
            stream.layers.pop()

    def _layer_code(self, layer: Any, holder: int) -> int:
        """The code of a layer in this outer layer. Layers of the same name in it are numbered."""
        key = (holder, id(layer))
        reference, code = self._codes.get(key, (None, -1))
        if reference is None or reference() is not layer:  # the identity may have been another layer's
            name = str(layer.name)
            counts = self._names.setdefault(holder, {})
            counts[name] = counts.get(name, 0) + 1
            path = name if counts[name] == 1 else f"{name}#{counts[name]}"
            definition = {"kind": "layer", "name": type(layer).__name__, "direction": "forward"}
            if holder < 0:
                self._roots += 1
                code = self.recorder.define(**definition, path="", root=self._roots, root_name=path)
            else:
                code = self.recorder.define(**definition, path=path, inside=holder // 2)
            self._codes[key] = (weakref.ref(layer), code)
        return code

    def _wrap_scope(self, original: Any) -> Any:
        """A wrapper that notes the scope of the graph that is being made: operations have its name."""

        def enter(scope: Any) -> Any:
            result = original(scope)
            tensorflow = self.watch.tensorflow
            if tensorflow is None or self._eagerly():
                return result
            described = next(((kind, type(scope.caller).__name__) for owner, kind in self._kinds
                          if isinstance(scope.caller, owner)), None)  # fmt: skip
            if described is None and self.thread.loss_class:
                described = ("loss", self.thread.loss_class)
            if described is not None:
                from tensorflow.python.framework.ops import get_name_scope

                number = tensorflow.number(scope.caller) if described[0] == "layer" else 0
                tensorflow.graph.note_scope(get_name_scope(), described[0], str(scope.name), described[1], number)
            return result

        return enter

    # ---- loss and optimizer -----------------------------------------------------------------------------------

    def _wrap_in_phase(self, name: str) -> Any:
        def wrap(original: Any) -> Any:
            def call(*args: Any, **kwargs: Any) -> Any:
                if self._silent or self.recorder.stream().layers:
                    with self.thread.inside_loss(args[0]):
                        return original(*args, **kwargs)
                stream = self.recorder.stream()
                stream.begin(self.phases.codes[name], None)
                try:
                    return original(*args, **kwargs)
                finally:
                    stream.push(self.loops.phase_values())
                    stream.end()

            return call

        return wrap

    def _wrap_apply(self, original: Any) -> Any:
        def apply(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            tensorflow = self.tensorflow
            if tensorflow is not None and (tensorflow.thread.depth or not self._eagerly()):
                tensorflow.note_gradient()
            if self._silent:
                return original(optimizer, *args, **kwargs)
            if tensorflow is not None:
                tensorflow.optimizers += 1
            stream = self.recorder.stream()
            stream.begin(self.phases.codes["optimizer"], None)
            try:
                return original(optimizer, *args, **kwargs)
            finally:
                stream.push((self.values["optimizer"], id(optimizer), *self.loops.phase_values()))
                stream.end()
                self._count_step(id(optimizer))

        return apply

    def _count_step(self, optimizer: int) -> None:
        self.steps += 1
        if self.backend == "torch":  # which may be counting operations, until an optimizer has stepped
            self.watch.schedule.end_optimizer_step(optimizer, now(), self.recorder.written)
        else:
            self.watch.end_step(now())

    def _wrap_building(self, original: Any) -> Any:
        """A wrapper for making weights before the first step: a forward that belongs to no step."""

        def build(*args: Any, **kwargs: Any) -> Any:
            stream = self.recorder.stream()
            if self._silent or stream.phases:
                return original(*args, **kwargs)
            stream.begin(self.phases.codes["forward"], None)
            self.thread.symbolic += 1
            try:
                return original(*args, **kwargs)
            finally:
                self.thread.symbolic -= 1
                stream.push((self.values["exhausted"], 1))
                stream.end()

        return build

    def _wrap_reset(self, original: Any) -> Any:
        """A wrapper that forgets counted samples when the mean loss begins anew."""

        def reset(trainer: Any) -> Any:
            if self.tensorflow is not None:
                self.tensorflow.batches.forget(trainer)
            return original(trainer)

        return reset

    # ---- loops ------------------------------------------------------------------------------------------------

    def _wrap_loop_begin(self, loop: str, part: str) -> Any:
        def wrap(original: Any) -> Any:
            def begin(*args: Any, **kwargs: Any) -> Any:
                self.loops.begin(loop, part)
                return original(*args, **kwargs)

            return begin

        return wrap

    def _wrap_loop_end(self, original: Any) -> Any:
        def end(*args: Any, **kwargs: Any) -> Any:
            self.loops.end()
            return original(*args, **kwargs)

        return end

    def _wrap_epoch_begin(self, original: Any) -> Any:
        def begin(*args: Any, **kwargs: Any) -> Any:
            self.loops.begin_epoch()
            return original(*args, **kwargs)

        return begin

    def _wrap_epoch_iterator(self, original: Any) -> Any:
        """A wrapper that states, once for each loop, how its data are loaded."""

        def iterate(batches: Any) -> Any:
            if self.loops.running and not self.loops.running[-1].introduced:
                self.loops.running[-1].introduced = True
                with suppress(Exception):  # an adapter of another version
                    loads = loading_of_adapter(batches.data_adapter, self.backend)
                    if loads:
                        self.recorder.state_lasting(loader=self.loops.running[-1].loader, loads=loads)
            return original(batches)

        return iterate

    def _time_jax_batches(self, original: Any) -> Any:
        """A wrapper that times the batches of steps in JAX."""

        def batches(epoch: Any) -> Any:
            return BatchIterator(iter(original(epoch)), self._wrap_fetch(lambda fetch: fetch()))

        return batches

    def _time_worker_batches(self, original: Any) -> Any:
        """A wrapper that times the batches that workers make: a graph of TensorFlow waits for them."""

        def batches(adapter: Any) -> Any:
            iterator = original(adapter)
            if adapter.enqueuer is None or self.tensorflow is None:
                return iterator
            return BatchIterator(iter(iterator), self.tensorflow.fetches.time_fetch)

        return batches

    def _wrap_fetch(self, original: Any) -> Any:
        """A wrapper for fetching by Keras itself; in TensorFlow a graph or an iterator of tf.data fetches."""
        code = self.recorder.define(kind="phase", name="data")

        def fetch(*args: Any, **kwargs: Any) -> Any:
            stream = self.recorder.stream()
            if self._silent or stream.phases:
                return original(*args, **kwargs)
            stream.begin(code, None)
            done = False
            try:
                batch = original(*args, **kwargs)
                done = True
                return batch
            finally:
                stream.push((*(() if done else (self.values["exhausted"], 1)), *self.loops.phase_values()))
                stream.end()

        return fetch


def _is_symbolic(values: tuple) -> bool:
    """Whether one of these values is, or holds, a symbolic tensor."""
    for value in values:
        if type(value).__name__ == SYMBOLIC_CLASS:
            return True
        if isinstance(value, (list, tuple)) and _is_symbolic(tuple(value)):
            return True
        if isinstance(value, dict) and _is_symbolic(tuple(value.values())):
            return True
    return False


def observe_keras(keras: Any, settings: dict, counting: Any = None) -> None:
    """Observe Keras in this process until it ends, with counters that are open already."""
    watch = watch_process(settings, counting)
    observer = KerasObserver(watch, keras)
    observer.install()
    framework = observer.backend if observer.backend in ("tensorflow", "torch", "jax") else "tensorflow"

    def threads() -> int:
        others = [entry for entry in watch.observed if entry.framework == framework and entry is not observed]
        return int(others[0].threads()) if others else 1

    observed = ObservedFramework(framework, observer.remove, lambda: observer.steps, threads, measure_recording_costs)
    watch.add(observed, keras=str(keras.__version__))
