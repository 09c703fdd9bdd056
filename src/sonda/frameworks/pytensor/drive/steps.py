"""Drives operations and networks in PyTensor: compile, warm up, timed steps, steps in pieces, a step that is counted.

A timed step calls the functions that a program would write: one for each operation, or one for a whole step of a
network. The layers inside a function cannot be timed. Therefore a network runs a few more steps, in which every layer
and direction is a function by itself (the pass `pieces`). Together these take longer than the one function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from time import perf_counter_ns
from typing import Any, Protocol

from sonda.frameworks.collector.recorder import Recorder
from sonda.frameworks.harness.announcer import AnnouncedObserver
from sonda.frameworks.harness.counted_step import NominalCost, StepCost, count_step
from sonda.frameworks.harness.settings import Driving, time_steps
from sonda.frameworks.harness.steps import PIECES_STEPS, warm_up
from sonda.frameworks.pytensor.observe.compilations import NumbaCompilations
from sonda.frameworks.pytensor.observe.linkers import linker_of


class PytensorOperationsTask(Protocol):
    """Operations that are ready to run, by name."""

    @property
    def names(self) -> Sequence[str]: ...

    @property
    def costs(self) -> Mapping[str, NominalCost]: ...

    @property
    def dtype(self) -> str: ...

    def function(self, op: str) -> Any: ...


class PytensorNetworkTask(Protocol):
    """A network with its examples. `inference`, `training` and `step_functions` give functions that never ran."""

    @property
    def train(self) -> bool: ...

    @property
    def dtype(self) -> str: ...

    @property
    def weights(self) -> Mapping[str, Any]: ...

    @property
    def costs(self) -> Sequence[StepCost]:
        """The costs of every operation of a step."""

    def first(self) -> Any: ...

    def batches(self) -> Iterator[tuple[Any, Any]]: ...

    def inference(self) -> Any: ...

    def training(self) -> Any: ...

    def step_functions(self) -> Any: ...


class Compiler:
    """Compiles functions, each in a span of its own, and notes what the run should say about it."""

    def __init__(self, observer: AnnouncedObserver) -> None:
        self.observer = observer
        self.numba = NumbaCompilations()
        self.linker = ""
        self.functions = 0
        self.seconds = 0.0

    def run(self, name: str, make: Callable[[], Any], call: Callable[[Any], Any]) -> Any:
        """The function that `make` gives, after `call` has called it once: Numba compiles at the first call."""
        begin = perf_counter_ns()
        with self.observer.span("compile", name):
            made = make()
            self.numba.listen()
            call(made)
        self.seconds += (perf_counter_ns() - begin) / 1e9
        self.functions += 1
        return made

    def finish(self, function: Any) -> None:
        """Note the linker of a function, how long compiling took, and whether Numba's code came from the disk."""
        self.numba.stop()
        self.linker = linker_of(function)
        note = f"PyTensor's linker is {self.linker}; compiling took {self.seconds:.2g} s before the steps, not in them"
        if self.linker == "numba" and not self.numba.count:
            note += ", with code from PyTensor's cache on disk"
        self.observer.notes.append(note)


def drive_operations(task: PytensorOperationsTask, observer: AnnouncedObserver, how: Driving) -> tuple[int, str]:
    """Run every operation once in a step; returns the number of timed steps, and the linker."""
    compiler = Compiler(observer)
    functions = {
        name: compiler.run(name, partial(task.function, name), lambda function: function()) for name in task.names
    }
    compiler.finish(functions[task.names[0]])

    def step(counted: bool = False) -> None:
        with observer.span("step", "test"), observer.phase("forward"), observer.layer(""):
            for name in task.names:
                with observer.layer(name, name.capitalize()):
                    if not counted:
                        functions[name]()
                        continue
                    cost = task.costs[name]
                    with observer.operation(f"pytensor.{name}", cost.flops, cost.bytes, task.dtype):
                        functions[name]()

    warm_up(observer, how, step)
    done = time_steps(how, step)
    with observer.span("pass", "count"):
        step(counted=True)
    return done, compiler.linker


def drive_network(task: PytensorNetworkTask, observer: AnnouncedObserver, how: Driving) -> tuple[int, str]:
    """Run inference or training; returns the number of timed steps, and the linker."""
    compiler = Compiler(observer)
    part = "train" if task.train else "test"
    first = next(task.batches()) if task.train else (task.first(),)
    # Compiling calls every function once. The weights are put back afterwards.
    initial = {name: weight.get_value() for name, weight in task.weights.items()}
    name, make = ("training", task.training) if task.train else ("inference", task.inference)
    step_function = compiler.run(name, make, lambda function: function(*first))
    silent = AnnouncedObserver(Recorder(""), None, observer.root)
    functions = compiler.run(
        "pieces", task.step_functions, lambda functions: run_layerwise(functions, silent, first, list(task.weights))
    )
    compiler.finish(step_function)
    for name, weight in task.weights.items():
        weight.set_value(initial[name])
    batches = task.batches()

    def step() -> None:
        with observer.span("step", part):
            if not task.train:
                with observer.phase("forward"), observer.layer(""):
                    step_function(*first)
                return
            with observer.phase("data"):
                batch = next(batches)
            with observer.phase("fused"):
                step_function(*batch)

    warm_up(observer, how, step)
    done = time_steps(how, step)
    with observer.span("pass", "pieces"):
        for _ in range(PIECES_STEPS):
            with observer.span("step", part):
                run_layerwise(functions, observer, next(batches) if task.train else first, list(task.weights))
    count_step(observer, part, task.costs, "pytensor", task.dtype)
    return done, compiler.linker


def run_layerwise(functions: Any, observer: AnnouncedObserver, batch: Sequence[Any], weights: Sequence[str]) -> None:
    """Run one step layer by layer; `weights` are the names in the order of the arguments of `functions.update`."""
    values = [batch[0]]
    with observer.phase("forward"), observer.layer(""):
        for layer in functions.layers:
            with observer.layer(layer.path, layer.class_name):
                values.append(layer.forward(values[-1]))
    if functions.update is None:
        return
    with observer.phase("loss"):
        functions.loss(values[-1], batch[1])
    gradients: dict[str, Any] = {}
    with observer.phase("backward"), observer.layer("", direction="backward"):
        upstream = functions.loss_gradient(values[-1], batch[1])
        for position, layer in reversed(list(enumerate(functions.layers))):
            with observer.layer(layer.path, layer.class_name, "backward"):
                layer_gradients = layer.backward(values[position], upstream) if layer.backward is not None else ()
            upstream, weight_gradients = (
                (layer_gradients[0], layer_gradients[1:])
                if position and layer_gradients
                else (upstream, layer_gradients)
            )
            gradients.update(zip(layer.weights, weight_gradients, strict=True))
    with observer.phase("optimizer"):
        functions.update(*(gradients[name] for name in weights))
