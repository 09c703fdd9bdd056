"""Makes Keras announce its layers, losses, optimizers and loops, on whichever framework it computes.

What Keras runs layer by layer (PyTorch, or `run_eagerly`) is seen layer by layer; what it compiles is one phase, which
the framework's own observer sees. `fit`, `evaluate` and `predict` say which part a step is of, and which epoch.
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
from .keras_input import Batches, loading_of_adapter

SYMBOLIC = "KerasTensor"
"""The class of what stands for a tensor while a model is put together."""


class _Mine(threading.local):
    """Of the calling thread."""

    symbolic = 0
    """Calls that put a model together and compute nothing."""
    losing = ""
    """The class of the loss that a graph is being made of."""

    @contextmanager
    def loss_of(self, one: Any) -> Any:
        """What is made inside belongs to this loss, or to the one around it; a trainer is none."""
        kept = self.losing
        if not kept and type(one).__name__.endswith("Loss"):
            self.losing = type(one).__name__
        elif not kept and not hasattr(one, "fit"):
            self.losing = f"{type(one).__name__}Loss"
        try:
            yield
        finally:
            self.losing = kept


class KerasObserver(PatchingObserver):
    """Patches Keras on `install`; `remove` puts everything back."""

    def __init__(self, watch: ProcessWatch, keras: Any) -> None:
        self.watch = watch
        self.keras = keras
        self.recorder = watch.recorder
        self.phases = watch.phases
        self.mine = _Mine()
        self.steps = 0
        super().__init__()
        self._codes: dict = {}
        """By the code of the layer around it and the layer's identity: the layer, weakly, and its code."""
        self._names: dict = {}
        """By the code of the layer around it: names that are taken."""
        self._roots = 0
        self.loops = watch.loops
        define = self.recorder.define
        self.values = {
            name: define(kind="value", quantity=name, source="counted")
            for name in ("optimizer", "exhausted", "training")
        }

    @property
    def tensorflow(self) -> Any:
        """The observer of TensorFlow, where that computes; else None."""
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
            # Under a strategy a batch is fetched for it, which is none of a step either.
            self.replace(TensorFlowTrainer, "_maybe_symbolic_build", self._building)
            self._kinds = ((Layer, "layer"), (BaseOptimizer, "optimizer"))
            self.replace(name_scope, "__enter__", self._scope)
            self.replace(PyDatasetAdapter, "_get_iterator", self._noted)
        elif self.backend == "jax":
            from jax._src.core import trace_state_clean  # type: ignore[import-not-found,unused-ignore]
            from keras.src.backend.jax.trainer import JAXEpochIterator

            self._eagerly = trace_state_clean
            self.replace(JAXEpochIterator, "_get_iterator", self._timed)
        else:
            self._eagerly = lambda: True
        if self.backend != "torch":
            # There layers are PyTorch's modules, and its observer sees their backward too.
            self.replace(Layer, "__call__", self._layer)
        self.replace(Loss, "__call__", self._in_phase("loss"))
        self.replace(Trainer, "_compute_loss", self._in_phase("loss"))
        self.replace(Trainer, "_symbolic_build", self._building)
        self.replace(Trainer, "reset_metrics", self._resets)
        self.replace(BaseOptimizer, "apply", self._apply)
        self.replace(CallbackList, "on_epoch_begin", self._epoch_begins)
        self.replace(CallbackList, "on_train_begin", self._loop_begins("train", "train"))
        self.replace(CallbackList, "on_train_end", self._loop_ends)
        self.replace(CallbackList, "on_test_begin", self._loop_begins("test", "test"))
        self.replace(CallbackList, "on_test_end", self._loop_ends)
        self.replace(CallbackList, "on_predict_begin", self._loop_begins("predict", "test"))
        self.replace(CallbackList, "on_predict_end", self._loop_ends)
        self.replace(EpochIterator, "__iter__", self._walks)
        self.replace(EpochIterator, "__next__", self._fetch)
        self.on = True

    @property
    def _silent(self) -> bool:
        """Whether nothing is recorded here: it is over, a graph is being made, or a model put together."""
        if not self.on or self.recorder.off or self.watch.schedule.over or self.mine.symbolic:
            return True
        return not self._eagerly() or (self.tensorflow is not None and bool(self.tensorflow.mine.depth))

    # ---- layers -----------------------------------------------------------------------------------------------

    def _layer(self, original: Any) -> Any:
        mine = self.mine

        def call(layer: Any, *args: Any, **kwargs: Any) -> Any:
            if self._silent:
                return original(layer, *args, **kwargs)
            if _symbolic(args) or (kwargs and _symbolic(tuple(kwargs.values()))):
                mine.symbolic += 1
                try:
                    return original(layer, *args, **kwargs)
                finally:
                    mine.symbolic -= 1
            stream = self.recorder.stream()
            if not stream.layers:
                return self._outermost(original, stream, layer, args, kwargs)
            return self._recorded(original, stream, layer, args, kwargs)

        return call

    def _outermost(self, original: Any, stream: Any, layer: Any, args: tuple, kwargs: dict) -> Any:
        """A layer that no other layer called: a forward, or a part of a phase that is open already."""
        if stream.phases:
            return self._recorded(original, stream, layer, args, kwargs)
        stream.begin(self.phases.codes["forward"], None)
        try:
            return self._recorded(original, stream, layer, args, kwargs)
        finally:
            learns = bool(self.loops.running and self.loops.running[-1].part == "train")
            stream.push((self.values["training"], int(learns), *self.loops.phase_values()))
            stream.end()

    def _recorded(self, original: Any, stream: Any, layer: Any, args: tuple, kwargs: dict) -> Any:
        if not stream.detail:
            return original(layer, *args, **kwargs)
        code = self._code(layer, stream.layers[-1] if stream.layers else -1)
        stream.layers.append(code)
        stream.push((code, now()))
        try:
            return original(layer, *args, **kwargs)
        finally:
            stream.push((code + 1, now()))
            stream.layers.pop()

    def _code(self, layer: Any, holder: int) -> int:
        """The code of a layer where it is called. Layers of one name under one holder are numbered."""
        key = (holder, id(layer))
        known, code = self._codes.get(key, (None, -1))
        if known is None or known() is not layer:  # the number may have been another one's
            name = str(layer.name)
            taken = self._names.setdefault(holder, {})
            taken[name] = taken.get(name, 0) + 1
            own = name if taken[name] == 1 else f"{name}#{taken[name]}"
            words = {"kind": "layer", "name": type(layer).__name__, "direction": "forward"}
            if holder < 0:
                self._roots += 1
                code = self.recorder.define(**words, path="", root=self._roots, root_name=own)
            else:
                code = self.recorder.define(**words, path=own, inside=holder // 2)
            self._codes[key] = (weakref.ref(layer), code)
        return code

    def _scope(self, original: Any) -> Any:
        """A scope of the graph that is being made: whose operations have its name."""

        def enter(scope: Any) -> Any:
            result = original(scope)
            tensorflow = self.watch.tensorflow
            if tensorflow is None or self._eagerly():
                return result
            about = next(((kind, type(scope.caller).__name__) for owner, kind in self._kinds
                          if isinstance(scope.caller, owner)), None)  # fmt: skip
            if about is None and self.mine.losing:
                about = ("loss", self.mine.losing)
            if about is not None:
                from tensorflow.python.framework.ops import get_name_scope

                number = tensorflow.number(scope.caller) if about[0] == "layer" else 0
                tensorflow.graph.scoped(get_name_scope(), about[0], str(scope.name), about[1], number)
            return result

        return enter

    # ---- loss and optimizer -----------------------------------------------------------------------------------

    def _in_phase(self, name: str) -> Any:
        def wrap(original: Any) -> Any:
            def call(*args: Any, **kwargs: Any) -> Any:
                if self._silent or self.recorder.stream().layers:
                    with self.mine.loss_of(args[0]):
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

    def _apply(self, original: Any) -> Any:
        def apply(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            tensorflow = self.tensorflow
            if tensorflow is not None and (tensorflow.mine.depth or not self._eagerly()):
                tensorflow.learning()
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
                self._stepped(id(optimizer))

        return apply

    def _stepped(self, optimizer: int) -> None:
        self.steps += 1
        if self.backend == "torch":  # which may be counting operations, until an optimizer has stepped
            self.watch.schedule.end_optimizer_step(optimizer, now(), self.recorder.written)
        else:
            self.watch.end_step(now())

    def _building(self, original: Any) -> Any:
        """Weights are made before the first step: a forward that is none of a step."""

        def build(*args: Any, **kwargs: Any) -> Any:
            stream = self.recorder.stream()
            if self._silent or stream.phases:
                return original(*args, **kwargs)
            stream.begin(self.phases.codes["forward"], None)
            self.mine.symbolic += 1
            try:
                return original(*args, **kwargs)
            finally:
                self.mine.symbolic -= 1
                stream.push((self.values["exhausted"], 1))
                stream.end()

        return build

    def _resets(self, original: Any) -> Any:
        """Means begin anew, and what they counted."""

        def reset(trainer: Any) -> Any:
            if self.tensorflow is not None:
                self.tensorflow.batches.forget(trainer)
            return original(trainer)

        return reset

    # ---- loops ------------------------------------------------------------------------------------------------

    def _loop_begins(self, loop: str, part: str) -> Any:
        def wrap(original: Any) -> Any:
            def begins(*args: Any, **kwargs: Any) -> Any:
                self.loops.begin(loop, part)
                return original(*args, **kwargs)

            return begins

        return wrap

    def _loop_ends(self, original: Any) -> Any:
        def ends(*args: Any, **kwargs: Any) -> Any:
            self.loops.end()
            return original(*args, **kwargs)

        return ends

    def _epoch_begins(self, original: Any) -> Any:
        def begins(*args: Any, **kwargs: Any) -> Any:
            self.loops.begin_epoch()
            return original(*args, **kwargs)

        return begins

    def _walks(self, original: Any) -> Any:
        """A loop walks through its data: what is known of that is stated once."""

        def walks(batches: Any) -> Any:
            if self.loops.running and not self.loops.running[-1].introduced:
                self.loops.running[-1].introduced = True
                with suppress(Exception):  # an adapter of another version
                    loads = loading_of_adapter(batches.data_adapter, self.backend)
                    if loads:
                        self.recorder.state_lasting(loader=self.loops.running[-1].loader, loads=loads)
            return original(batches)

        return walks

    def _timed(self, original: Any) -> Any:
        """The iterator that steps of JAX have their batches from."""

        def batches(epoch: Any) -> Any:
            return Batches(iter(original(epoch)), self._fetch(lambda fetch: fetch()))

        return batches

    def _noted(self, original: Any) -> Any:
        """What workers have made goes into a graph of TensorFlow without anything in between: while it is waited for,
        the graph waits."""

        def batches(adapter: Any) -> Any:
            made = original(adapter)
            if adapter.enqueuer is None or self.tensorflow is None:
                return made
            return Batches(iter(made), self.tensorflow.fetches.noted)

        return batches

    def _fetch(self, original: Any) -> Any:
        """A batch that Keras itself fetches; in TensorFlow a graph or an iterator of tf.data does."""
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


def _symbolic(values: tuple) -> bool:
    """Whether one of these stands for a tensor that is not there yet."""
    for value in values:
        if type(value).__name__ == SYMBOLIC:
            return True
        if isinstance(value, (list, tuple)) and _symbolic(tuple(value)):
            return True
        if isinstance(value, dict) and _symbolic(tuple(value.values())):
            return True
    return False


def observe_keras(keras: Any, settings: dict, counting: Any = None) -> None:
    """Observe Keras in this process until it ends, with counters that are open already."""
    watch = watch_process(settings, counting)
    observer = KerasObserver(watch, keras)
    observer.install()
    framework = observer.backend if observer.backend in ("tensorflow", "torch", "jax") else "tensorflow"

    def threads() -> int:
        others = [one for one in watch.observed if one.framework == framework and one is not observed]
        return int(others[0].threads()) if others else 1

    observed = ObservedFramework(framework, observer.remove, lambda: observer.steps, threads, measure_recording_costs)
    watch.add(observed, keras=str(keras.__version__))
