"""Drives operations and networks in PyTensor: compile, warm up, timed steps, steps in pieces, a step that is counted.

A timed step calls the functions that anybody would write: one for each operation, or one for a whole step of a network.
How long the layers inside that one take nobody can tell, so networks have steps of their own in which every layer and
direction is a function by itself (the pass `pieces`). They take longer together than the one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from time import perf_counter_ns
from typing import Any, Protocol

from sonda.frameworks.collector.recorder import Recorder
from sonda.frameworks.harness.announcer import AnnouncedObserver
from sonda.frameworks.harness.counted_step import OperationCost, StepCost, count_step
from sonda.frameworks.harness.settings import Driving, time_steps
from sonda.frameworks.harness.steps import PIECES_STEPS, warm_up
from sonda.frameworks.pytensor.observe.compilations import NumbaCompilations
from sonda.frameworks.pytensor.observe.linkers import linker_of


class OperationsTask(Protocol):
    """Operations that are ready to run, by name."""

    @property
    def names(self) -> Sequence[str]: ...

    @property
    def costs(self) -> Mapping[str, OperationCost]: ...

    @property
    def dtype(self) -> str: ...

    def function(self, op: str) -> Any: ...


class NetworkTask(Protocol):
    """A network with its examples. `inference`, `training` and `pieces` give functions that never ran."""

    @property
    def train(self) -> bool: ...

    @property
    def dtype(self) -> str: ...

    @property
    def weights(self) -> Mapping[str, Any]: ...

    @property
    def costs(self) -> Sequence[StepCost]:
        """Every operation of a step."""

    def first(self) -> Any: ...

    def batches(self) -> Iterator[tuple[Any, Any]]: ...

    def inference(self) -> Any: ...

    def training(self) -> Any: ...

    def pieces(self) -> Any: ...


class Compiling:
    """Makes functions ready under spans of their own, and keeps what a run should say of that."""

    def __init__(self, observer: AnnouncedObserver) -> None:
        self.observer = observer
        self.numba = NumbaCompilations()
        self.linker = ""
        self.functions = 0
        self.seconds = 0.0

    def run(self, name: str, make: Callable[[], Any], call: Callable[[Any], Any]) -> Any:
        """What `make` gives, after `call` has run it once: Numba compiles at the first call."""
        begin = perf_counter_ns()
        with self.observer.span("compile", name):
            made = make()
            self.numba.listen()
            call(made)
        self.seconds += (perf_counter_ns() - begin) / 1e9
        self.functions += 1
        return made

    def finish(self, function: Any) -> None:
        """Note the linker of a function, how long all took, and whether it was compiled here or found on disk."""
        self.numba.stop()
        self.linker = linker_of(function)
        note = f"PyTensor's linker is {self.linker}; compiling took {self.seconds:.2g} s before the steps, not in them"
        if self.linker == "numba" and not self.numba.count:
            note += ", with code from PyTensor's cache on disk"
        self.observer.notes.append(note)


def drive_operations(task: OperationsTask, observer: AnnouncedObserver, how: Driving) -> tuple[int, str]:
    """Run every operation once in a step; returns the number of timed steps, and the linker."""
    compiling = Compiling(observer)
    functions = {
        name: compiling.run(name, partial(task.function, name), lambda function: function()) for name in task.names
    }
    compiling.finish(functions[task.names[0]])

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
    return done, compiling.linker


def drive_network(task: NetworkTask, observer: AnnouncedObserver, how: Driving) -> tuple[int, str]:
    """Run inference or training; returns the number of timed steps, and the linker."""
    compiling = Compiling(observer)
    part = "train" if task.train else "test"
    first = next(task.batches()) if task.train else (task.first(),)
    # Compiling calls every function once: training then begins anew.
    kept = {name: weight.get_value() for name, weight in task.weights.items()}
    name, make = ("training", task.training) if task.train else ("inference", task.inference)
    whole = compiling.run(name, make, lambda function: function(*first))
    unheard = AnnouncedObserver(Recorder(""), None, observer.root)
    pieces = compiling.run("pieces", task.pieces, lambda made: run_pieces(made, unheard, first, list(task.weights)))
    compiling.finish(whole)
    for name, weight in task.weights.items():
        weight.set_value(kept[name])
    batches = task.batches()

    def step() -> None:
        with observer.span("step", part):
            if not task.train:
                with observer.phase("forward"), observer.layer(""):
                    whole(*first)
                return
            with observer.phase("data"):
                batch = next(batches)
            with observer.phase("fused"):
                whole(*batch)

    warm_up(observer, how, step)
    done = time_steps(how, step)
    with observer.span("pass", "pieces"):
        for _ in range(PIECES_STEPS):
            with observer.span("step", part):
                run_pieces(pieces, observer, next(batches) if task.train else first, list(task.weights))
    count_step(observer, part, task.costs, "pytensor", task.dtype)
    return done, compiling.linker


def run_pieces(pieces: Any, observer: AnnouncedObserver, batch: Sequence[Any], weights: Sequence[str]) -> None:
    """One step in pieces; `weights` are the names in the order in which `pieces.update` takes their gradients."""
    values = [batch[0]]
    with observer.phase("forward"), observer.layer(""):
        for layer in pieces.layers:
            with observer.layer(layer.path, layer.class_name):
                values.append(layer.forward(values[-1]))
    if pieces.update is None:
        return
    with observer.phase("loss"):
        pieces.loss(values[-1], batch[1])
    gradients: dict[str, Any] = {}
    with observer.phase("backward"), observer.layer("", direction="backward"):
        upstream = pieces.loss_gradient(values[-1], batch[1])
        for number, layer in reversed(list(enumerate(pieces.layers))):
            with observer.layer(layer.path, layer.class_name, "backward"):
                found = layer.backward(values[number], upstream) if layer.backward is not None else ()
            upstream, own = (found[0], found[1:]) if number and found else (upstream, found)
            gradients.update(zip(layer.weights, own, strict=True))
    with observer.phase("optimizer"):
        pieces.update(*(gradients[name] for name in weights))
