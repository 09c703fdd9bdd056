"""Drives a workload in TensorFlow: trace, warm up, timed steps, steps in pieces, a step that is counted.

A timed step is a call of one `tf.function`, as programs in TensorFlow write it: training is one phase, `fused`. Phases
and layers come from a few more steps (the pass `pieces`): the same function under TensorFlow's profiler.

On a GPU a profile of the host tells when kernels are launched, not when they run. There the steps of the pass `pieces`
run layer by layer without a graph, and every layer is waited for; of a timed step only the end is. A few more steps run
as they were timed, and their kernels are recorded. A profiler outside that replays kernels is told of one step.
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
from sonda.frameworks.tensorflow.drive.profiled_steps import ReadProfile, attribute_cost, profile_steps
from sonda.frameworks.tensorflow.observe import devices
from sonda.frameworks.tensorflow.observe.devices import describe_gpu, mark_clock

# ---- Kernels of a few steps: TensorFlow's own profiler around them, and what is stated of the GPU -------------------

PROFILE = ProfileFile("TensorFlow", "profile", ".xplane.pb", "tensorflow.kernels.xplane.pb")


def record_kernels(observer: AnnouncedObserver, tf: Any, how: Driving, step: Callable[[], None]) -> None:
    """Run a few more steps, record their kernels, and state which GPU ran them."""
    with record_profile(observer.recorder, tf), observer.span("pass", "kernels"):
        for _ in range(KERNEL_STEPS):
            step()
    _state_device(observer.recorder, tf, how.device)


def record_profile(recorder: Recorder, tf: Any) -> AbstractContextManager[None]:
    """Record the kernels of what runs in this block."""
    profiler = tf.profiler.experimental

    def start(folder: str) -> None:
        # Operations of the host and frames of Python would fill the profile and say nothing of kernels.
        profiler.start(folder, profiler.ProfilerOptions(host_tracer_level=1, python_tracer_level=0))

    return profile_kernels(recorder, Profiler(PROFILE, start, lambda: mark_clock(tf), profiler.stop))


def _state_device(recorder: Recorder, tf: Any, device: str) -> None:
    """State which GPU it was, and the most of its memory that TensorFlow's tensors took."""
    number = device.partition(":")[2] or "0"
    if description := describe_gpu(tf, int(number)):
        recorder.state(devices={number: description})


# ----------------------------------------------------------------------------------------------------------------------

FUNCTIONS = {True: "learn", False: "infer_scoped"}
"""Names of the functions that are a step, by whether it trains."""


class TensorflowNetworkTask(Protocol):
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
        """Whether XLA compiles it."""

    @property
    def classes(self) -> Mapping[str, str]:
        """Of all layers by path, that of the network ('') among them."""

    def function(self) -> Any:
        """A step as a `tf.function` that was not traced yet."""


class LayerAnnouncer(Protocol):
    """Whoever is told of phases and layers."""

    def phase(self, name: str) -> AbstractContextManager[None]: ...

    def layer(self, path: str, class_name: str = "", direction: str = "forward") -> AbstractContextManager[None]: ...


class LayerwiseStep(Protocol):
    """Runs a step layer by layer, and announces the layers."""

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
        """`waiting`: whether every operation is waited for by itself."""
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

    def record(recorded: Callable[[], None]) -> None:
        record_kernels(observer, _tensorflow(), how, recorded)

    done = run_steps(observer, how, step, record, lambda: step(waiting=True))
    if how.replay:
        return done
    with observer.span("pass", "count"):
        step(waiting=True, counted=True)
    return done


def drive_network(
    task: TensorflowNetworkTask,
    make_layerwise: Callable[[LayerAnnouncer], LayerwiseStep],
    batches: Batches,
    observer: AnnouncedObserver,
    how: Driving,
    read_profile: ReadProfile,
) -> int:
    """Run inference or training; returns the number of timed steps.

    `batches` begins an endless row of batches anew. `make_layerwise` gives a step that announces its layers to the one
    it is given.
    """
    part = "train" if task.train else "test"
    first = next(batches()) if task.train else (task.first,)
    function = task.function()
    _trace(task, observer, function, first)
    row = batches() if task.train else iter(())
    layerwise = make_layerwise(SynchronisingAnnouncer(observer) if how.on_gpu else observer)

    def run_layerwise(step: LayerwiseStep) -> None:
        wait(step.learn(*next(row)) if task.train else step.infer(*first))

    def step() -> None:
        with observer.span("step", part):
            if VARIABLE in os.environ:
                # In a step that callgrind models, only a layerwise step tells phases and layers apart.
                run_layerwise(layerwise)
                return
            if not task.train:
                with observer.phase("forward"), observer.layer(""):
                    wait(function(*first))
                return
            with observer.phase("data"):
                batch = next(row)
            with observer.phase("fused"):
                wait(function(*batch))

    done = run_steps(observer, how, step, lambda recorded: record_kernels(observer, _tensorflow(), how, recorded))
    if how.replay:
        return done
    if how.on_gpu or VARIABLE in os.environ:
        # The very first step looks up its kernels, and is not recorded.
        run_layerwise(make_layerwise(make_silent_observer(observer.root)))
        with observer.span("pass", "pieces"):
            for _ in range(PIECES_STEPS):
                with observer.span("step", part):
                    run_layerwise(layerwise)
        observer.notes.append(
            "layers are those of steps that run layer by layer, without the graph"
            + ", which XLA compiled" * task.compiled
        )
        costs = list(task.costs)
    else:
        costs = _profile_layers(task, observer, lambda: next(row) if task.train else first, function, read_profile)
    count_step(observer, part, costs, "tensorflow", task.dtype)
    return done


def _trace(task: TensorflowNetworkTask, observer: AnnouncedObserver, function: Any, batch: tuple[Any, ...]) -> None:
    """Call the step once, and put the weights back: TensorFlow and XLA optimise a graph when it first runs."""
    begin = perf_counter_ns()
    with observer.span("compile", "training" if task.train else "inference"):
        initial = {name: weight.value() for name, weight in task.weights.items()}
        wait(function(*batch))
        for name, weight in task.weights.items():
            weight.assign(initial[name])
    _note_tracing(observer, begin, 1)


def _profile_layers(
    task: TensorflowNetworkTask, observer: AnnouncedObserver, next_batch: Callable[[], Any], function: Any,
    read_profile: ReadProfile,
) -> list[StepCost]:  # fmt: skip
    """Run more of the timed steps under TensorFlow's profiler; the costs of a step under the layers that have time."""

    def step() -> tuple[int, int]:
        with observer.span("step", "train" if task.train else "test"):
            with observer.phase("data") if task.train else nullcontext():
                batch = next_batch()
            begin = perf_counter_ns()
            wait(function(*batch))
            return begin, perf_counter_ns()

    loss = next((cost.class_name for cost in task.costs if cost.phase == LOSS), "")
    phases = [phase for phase in ORDER if phase != COMMUNICATE] if task.train else ["forward"]
    profiled = profile_steps(
        observer, _tensorflow(), step, FUNCTIONS[task.train], task.classes, loss, read_profile, phases
    )
    if profiled.missing:
        observer.notes.append(f"phases and layers of a step are missing: {profiled.missing}")
        return list(task.costs)
    fused = "what XLA fuses" if task.compiled else "what is fused"
    observer.notes.append(
        f"layers are those of the same function under TensorFlow's profiler, which tells {100 * profiled.share:.0f} % "
        f"of its time apart: {fused} counts for the layer of its product" + ", or of its last operation" * task.compiled
    )
    return [attribute_cost(cost, profiled.layers, task.classes) for cost in task.costs]


def make_silent_observer(root: str) -> AnnouncedObserver:
    """An observer that writes nothing."""
    return AnnouncedObserver(Recorder(""), None, root)


class SynchronisingAnnouncer:
    """Tells an observer of phases and layers. Each of them ends when the devices have done all their work."""

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
    """Wait until a GPU has computed a result, without copying it; returns it. On a processor it is there already."""
    if result is not None and "GPU" in getattr(result, "device", ""):
        _synchronise()
    return result


def _synchronise() -> None:
    """Wait until all devices have done all their work."""
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


# ---- A model whose layers Sonda does not know: trace, warm up, timed steps ------------------------------------------


class OpaqueTask(Protocol):
    """A model with the arguments of its steps."""

    @property
    def train(self) -> bool: ...

    @property
    def parameters(self) -> int: ...

    def function(self) -> Any: ...

    def arguments(self) -> tuple[Any, ...]: ...


def drive_opaque(task: OpaqueTask, observer: AnnouncedObserver, how: Driving) -> int:
    """Run inference or training as asked; returns the number of timed steps."""
    part, phase = ("train", "fused") if task.train else ("test", "forward")
    step_function, arguments = task.function(), task.arguments()
    begin = perf_counter_ns()
    with observer.span("compile", "training" if task.train else "inference"):
        _wait_for_parts(step_function(*arguments))
    lasted = (perf_counter_ns() - begin) / 1e9
    observer.notes += [
        f"{task.parameters:,} parameters; tracing and the first run took {lasted:.2g} s before the steps, not in them",
        "layers are not recorded: a step is one compiled function",
    ]

    def step() -> None:
        with observer.span("step", part), observer.phase(phase):
            _wait_for_parts(step_function(*arguments))

    def record(recorded: Callable[[], None]) -> None:
        import tensorflow

        record_kernels(observer, tensorflow, how, recorded)

    return run_steps(observer, how, step, record)


def _wait_for_parts(result: Any) -> None:
    """Wait until all parts of a nested result are there. The first part on a GPU waits for all devices."""
    parts = list(result.values()) if isinstance(result, dict) else [result]
    while parts:
        part = parts.pop()
        parts += part.values() if isinstance(part, dict) else part if isinstance(part, (list, tuple)) else ()
        if "GPU" in getattr(part, "device", ""):
            wait(part)
            return
