"""Drives a workload in TensorFlow: trace, warm up, timed steps, steps in pieces, a step that is counted.

A timed step is a call of one `tf.function`, as programs in TensorFlow have it: training is one phase, `fused`. Phases
and layers are those of steps of their own (the pass `pieces`): the same function under TensorFlow's profiler. On a GPU
a profile of the host tells when kernels are launched, not when they run: there steps in pieces run layer by layer
without a graph, each waited for, while of timed steps nothing but the end is; the kernels of a few more of them, run as
they were timed, are recorded. A profiler outside that replays kernels is told of one step.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from time import perf_counter_ns
from typing import Any, Protocol

from sonda.frameworks.collector.callgrind import VARIABLE
from sonda.frameworks.collector.recorder import Recorder
from sonda.frameworks.harness.announcer import AnnouncedObserver
from sonda.frameworks.harness.attribution import COMMUNICATE, LOSS, ORDER
from sonda.frameworks.harness.counted_step import OperationsTaskProtocol, StepCost, count_step
from sonda.frameworks.harness.kernels import ProfileFile, Profiler, profile_kernels
from sonda.frameworks.harness.settings import KERNEL_STEPS, Driving
from sonda.frameworks.harness.steps import PIECES_STEPS, run_steps
from sonda.frameworks.tensorflow.drive.pieces import ReadProfile, steps_in_pieces, where_it_ran
from sonda.frameworks.tensorflow.observe import devices
from sonda.frameworks.tensorflow.observe.devices import about, mark_clock

# ---- Kernels of a few steps of a TensorFlow program: its own profiler around them, and what is said of the GPU ------

PROFILE = ProfileFile("TensorFlow", "profile", ".xplane.pb", "tensorflow.kernels.xplane.pb")


def record_kernels(observer: AnnouncedObserver, tf: Any, how: Driving, step: Callable[[], None]) -> None:
    """Run steps of their own whose kernels are recorded, and say which GPU it was."""
    with recorded_by(observer.recorder, tf), observer.span("pass", "kernels"):
        for _ in range(KERNEL_STEPS):
            step()
    _state_device(observer.recorder, tf, how.device)


def recorded_by(recorder: Recorder, tf: Any) -> AbstractContextManager[None]:
    """Record the kernels of what runs in this block."""
    profiler = tf.profiler.experimental

    def start(folder: str) -> None:
        # Operations of the host and frames of Python would fill the profile and say nothing of kernels.
        profiler.start(folder, profiler.ProfilerOptions(host_tracer_level=1, python_tracer_level=0))

    return profile_kernels(recorder, Profiler(PROFILE, start, lambda: mark_clock(tf), profiler.stop))


def _state_device(recorder: Recorder, tf: Any, device: str) -> None:
    """Which GPU it was, and the most of its memory that TensorFlow held."""
    number = device.partition(":")[2] or "0"
    if found := about(tf, int(number)):
        recorder.state(devices={number: found})


# ----------------------------------------------------------------------------------------------------------------------

FUNCTIONS = {True: "learn", False: "inferred"}
"""Names of the functions that are a step, of training or not."""


class NetworkTask(Protocol):
    """A network with its weights."""

    @property
    def train(self) -> bool: ...

    @property
    def dtype(self) -> str: ...

    @property
    def weights(self) -> Mapping[str, Any]: ...

    @property
    def costs(self) -> Sequence[StepCost]: ...

    @property
    def first(self) -> Any: ...

    @property
    def compiled(self) -> bool:
        """By XLA."""

    @property
    def classes(self) -> Mapping[str, str]:
        """Of all layers by path, '' among them."""

    def function(self) -> Any:
        """A step as a graph that was not traced yet."""


class Announcer(Protocol):
    """Who is told of phases and layers."""

    def phase(self, name: str) -> AbstractContextManager[None]: ...

    def layer(self, path: str, class_name: str = "", direction: str = "forward") -> AbstractContextManager[None]: ...


class InPieces(Protocol):
    """Runs a step layer by layer, and announces them."""

    def infer(self, inputs: Any) -> Any: ...

    def learn(self, inputs: Any, targets: Any) -> Any: ...


Batches = Callable[[], Iterator[tuple[Any, Any]]]


def drive_operations(task: OperationsTaskProtocol, observer: AnnouncedObserver, how: Driving) -> int:
    """Run every operation once in a step; returns the number of timed steps."""
    begin = perf_counter_ns()
    for name in task.names:
        with observer.span("compile", name):
            wait(task.functions[name](*task.operands[name]))
    _note_tracing(observer, begin, len(task.names))

    def step(waiting: bool = not how.on_gpu, counted: bool = False) -> None:
        """`waiting`: for every operation by itself."""
        with observer.span("step", "test"), observer.phase("forward"), observer.layer(""):
            for name in task.names:
                with observer.layer(name, name.capitalize()):
                    if not counted:
                        result = task.functions[name](*task.operands[name])
                        if waiting:
                            wait(result)
                        continue
                    cost = task.costs[name]
                    with observer.operation(f"tensorflow.{name}", cost.flops, cost.bytes, task.dtype):
                        wait(task.functions[name](*task.operands[name]))
            if not waiting:
                wait(result)

    def record(one: Callable[[], None]) -> None:
        record_kernels(observer, _tensorflow(), how, one)

    done = run_steps(observer, how, step, record, lambda: step(waiting=True))
    if how.replay:
        return done
    with observer.span("pass", "count"):
        step(waiting=True, counted=True)
    return done


def drive_network(
    task: NetworkTask,
    pieces: Callable[[Announcer], InPieces],
    batches: Batches,
    observer: AnnouncedObserver,
    how: Driving,
    read: ReadProfile,
) -> int:
    """Run inference or training; `batches` begins an endless row anew, `pieces` tells whom of its layers.

    Returns the number of timed steps.
    """
    part = "train" if task.train else "test"
    first = next(batches()) if task.train else (task.first,)
    whole = task.function()
    begin = perf_counter_ns()
    with observer.span("compile", "training" if task.train else "inference"):
        # A graph is optimised, and compiled by XLA, when it first runs: training then begins anew.
        kept = {name: weight.value() for name, weight in task.weights.items()}
        wait(whole(*first))
        for name, weight in task.weights.items():
            weight.assign(kept[name])
    _note_tracing(observer, begin, 1)
    row = batches() if task.train else iter(())
    announced = pieces(Waiting(observer) if how.on_gpu else observer)

    def in_pieces(run: InPieces) -> None:
        wait(run.learn(*next(row)) if task.train else run.infer(*first))

    def step() -> None:
        with observer.span("step", part):
            if VARIABLE in os.environ:
                # Of a step that is modelled, nothing but its pieces tells phases and layers apart.
                in_pieces(announced)
                return
            if not task.train:
                with observer.phase("forward"), observer.layer(""):
                    wait(whole(*first))
                return
            with observer.phase("data"):
                batch = next(row)
            with observer.phase("fused"):
                wait(whole(*batch))

    done = run_steps(observer, how, step, lambda one: record_kernels(observer, _tensorflow(), how, one))
    if how.replay:
        return done
    if how.on_gpu or VARIABLE in os.environ:
        # The first of all finds its kernels for the first time, and nobody hears of it.
        in_pieces(pieces(unheard(observer.root)))
        with observer.span("pass", "pieces"):
            for _ in range(PIECES_STEPS):
                with observer.span("step", part):
                    in_pieces(announced)
        observer.notes.append(
            "layers are those of steps that run layer by layer, without the graph"
            + ", which XLA compiled" * task.compiled
        )
        costs = list(task.costs)
    else:
        costs = _profiled(task, observer, lambda: next(row) if task.train else first, whole, part, read)
    count_step(observer, part, costs, "tensorflow", task.dtype)
    return done


def _profiled(
    task: NetworkTask, observer: AnnouncedObserver, given: Callable[[], Any], whole: Any, part: str, read: ReadProfile
) -> list[StepCost]:
    """More of the timed steps under TensorFlow's profiler; costs of a step under the layers that have its time."""

    def step() -> tuple[int, int]:
        with observer.span("step", part):
            with observer.phase("data") if task.train else nullcontext():
                batch = given()
            begin = perf_counter_ns()
            wait(whole(*batch))
            return begin, perf_counter_ns()

    loss = next((cost.class_name for cost in task.costs if cost.phase == LOSS), "")
    phases = [phase for phase in ORDER if phase != COMMUNICATE] if task.train else ["forward"]
    inside = steps_in_pieces(observer, _tensorflow(), step, FUNCTIONS[task.train], task.classes, loss, read, phases)
    if inside.missing:
        observer.notes.append(f"phases and layers of a step are missing: {inside.missing}")
        return list(task.costs)
    fused = "what XLA fuses" if task.compiled else "what is fused"
    observer.notes.append(
        f"layers are those of the same function under TensorFlow's profiler, which tells {100 * inside.share:.0f} % of "
        f"its time apart: {fused} counts for the layer of its product" + ", or of its last operation" * task.compiled
    )
    return [where_it_ran(cost, inside.ran, task.classes) for cost in task.costs]


def unheard(root: str) -> AnnouncedObserver:
    """An observer that writes nothing."""
    return AnnouncedObserver(Recorder(""), None, root)


class Waiting:
    """Tells an observer of phases and layers, each of which ends when the devices have done what was asked of them."""

    def __init__(self, observer: AnnouncedObserver) -> None:
        self._observer = observer

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        with self._observer.phase(name):
            yield
            _synchronise()

    @contextmanager
    def layer(self, path: str, class_name: str = "", direction: str = "forward") -> Iterator[None]:
        with self._observer.layer(path, class_name, direction):
            yield
            _synchronise()


def wait(result: Any) -> Any:
    """Until a GPU has computed this, which stays there: nothing is copied. On a processor it is there already."""
    if result is not None and "GPU" in getattr(result, "device", ""):
        _synchronise()
    return result


def _synchronise() -> None:
    """Until all devices have done what was asked of them."""
    devices.wait(_tensorflow())


def _tensorflow() -> Any:
    import tensorflow

    return tensorflow


def _note_tracing(observer: AnnouncedObserver, begin: int, functions: int) -> None:
    lasted = (perf_counter_ns() - begin) / 1e9
    plural = "s" if functions > 1 else ""
    observer.notes.append(
        f"tracing {functions} function{plural} and running each once took {lasted:.2g} s before the steps, not in them"
    )


# ---- Drives a model in TensorFlow whose inside is somebody else's: trace, warm up, timed steps ----------------------


class WholeTask(Protocol):
    """A model with what its steps are given."""

    @property
    def train(self) -> bool: ...

    @property
    def parameters(self) -> int: ...

    def function(self) -> Any: ...

    def arguments(self) -> tuple[Any, ...]: ...


def drive_whole(task: WholeTask, observer: AnnouncedObserver, how: Driving) -> int:
    """Run inference or training as asked; returns the number of timed steps."""
    part, phase = ("train", "fused") if task.train else ("test", "forward")
    step_function, arguments = task.function(), task.arguments()
    begin = perf_counter_ns()
    with observer.span("compile", "training" if task.train else "inference"):
        _wait(step_function(*arguments))
    lasted = (perf_counter_ns() - begin) / 1e9
    observer.notes += [
        f"{task.parameters:,} parameters; tracing and the first run took {lasted:.2g} s before the steps, not in them",
        "layers are not recorded: a step is one compiled function",
    ]

    def step() -> None:
        with observer.span("step", part), observer.phase(phase):
            _wait(step_function(*arguments))

    def record(one: Callable[[], None]) -> None:
        import tensorflow

        record_kernels(observer, tensorflow, how, one)

    return run_steps(observer, how, step, record)


def _wait(result: Any) -> None:
    """Until all parts of a result are there: devices are waited for once, whichever part is found on one first."""
    parts = list(result.values()) if isinstance(result, dict) else [result]
    while parts:
        one = parts.pop()
        parts += one.values() if isinstance(one, dict) else one if isinstance(one, (list, tuple)) else ()
        if "GPU" in getattr(one, "device", ""):
            wait(one)
            return
