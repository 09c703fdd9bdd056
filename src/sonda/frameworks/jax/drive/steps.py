"""Drives a network in JAX: compile, warm up, timed steps, steps that JAX profiles, a step that is counted by formula.

A timed step is what a program would write: a call of one jitted function with a batch, whose result is waited for. A
training step is therefore one phase, `fused`. Phases and layers come from a few more steps (the pass `pieces`), which
call the same compiled function under JAX's profiler. On a GPU the kernels of a few more steps are recorded. They belong
to the call of the function that launched them.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from time import perf_counter_ns
from typing import Any, Protocol

from sonda.frameworks.collector.failure import first_line
from sonda.frameworks.collector.recorder import Recorder
from sonda.frameworks.harness.announcer import AnnouncedObserver
from sonda.frameworks.harness.attribution import find_containers, order_pieces, write_call
from sonda.frameworks.harness.counted_step import OperationsTaskProtocol, StepCost, count_step, move_cost
from sonda.frameworks.harness.kernels import ProfileFile, Profiler, profile_kernels
from sonda.frameworks.harness.settings import KERNEL_STEPS, Driving
from sonda.frameworks.harness.steps import PIECES_STEPS, run_steps
from sonda.frameworks.jax.observe.profiler import mark_clock, start_trace
from sonda.frameworks.jax.profile.cuda_graphs import name_by_instruction
from sonda.frameworks.jax.profile.hlo import read_module
from sonda.frameworks.jax.profile.operations import (
    XlaOperation,
    exclusive_times,
    locate_instructions,
    place_of,
    split_runs,
    time_by_place,
    write_profile,
)

# ---- Kernels of a few steps: JAX's own profiler around them, and what is stated of the GPU --------------------------

TRACE = ProfileFile("JAX", "trace", ".trace.json.gz", "jax.kernels.json.gz")


def record_profile(recorder: Recorder, jax: Any) -> AbstractContextManager[None]:
    """Record the kernels of what runs in this block."""
    start, mark = (partial(function, jax.profiler) for function in (start_trace, mark_clock))
    return profile_kernels(recorder, Profiler(TRACE, start, mark, jax.profiler.stop_trace))


def record_kernels(observer: AnnouncedObserver, jax: Any, how: Driving, step: Callable[[], None]) -> None:
    """Run a few more steps, record their kernels, and state which GPU ran them."""
    with record_profile(observer.recorder, jax), observer.span("pass", "kernels"):
        for _ in range(KERNEL_STEPS):
            step()
    _state_device(observer.recorder, jax, how.device)


def _state_device(recorder: Recorder, jax: Any, device: str) -> None:
    """State which GPU it was, and the most of its memory that JAX used and reserved."""
    number = device.partition(":")[2] or "0"
    gpu = jax.devices()[int(number)]
    memory = gpu.memory_stats() or {}
    peak = memory.get("peak_bytes_in_use", 0)
    pool = memory.get("peak_pool_bytes", memory.get("pool_bytes", peak))
    description = {"name": gpu.device_kind, "peak_allocated": peak, "peak_reserved": max(pool, peak)}
    recorder.state(devices={number: description})


# ---- Single operations ----------------------------------------------------------------------------------------------

PART = "test"


def drive_operations(task: OperationsTaskProtocol, observer: AnnouncedObserver, jax: Any, how: Driving) -> int:
    """Run the task as asked; returns the number of timed steps."""
    compiled = _compile_operations(task, observer)

    def step(waiting: bool = not how.on_gpu, counted: bool = False) -> None:
        """`waiting`: whether every operation is waited for by itself."""
        with observer.span("step", PART):
            with observer.phase("forward"), observer.layer(""):
                results = [_run_operation(task, observer, compiled, name, waiting, counted) for name in task.names]
                jax.block_until_ready(results)

    def record(recorded: Callable[[], None]) -> None:
        record_kernels(observer, jax, how, recorded)

    done = run_steps(observer, how, step, record, lambda: step(waiting=True))
    if how.replay:
        return done
    with observer.span("pass", "count"):
        step(waiting=True, counted=True)
    return done


def _compile_operations(task: OperationsTaskProtocol, observer: AnnouncedObserver) -> dict[str, Callable[..., Any]]:
    """Compile every operation by itself, before anything is timed."""
    begin = perf_counter_ns()
    compiled = {}
    for name in task.names:
        with observer.span("compile", name):
            compiled[name] = task.functions[name].lower(*task.operands[name]).compile()
    lasted = (perf_counter_ns() - begin) / 1e9
    plural = "s" if len(compiled) > 1 else ""
    observer.notes.append(
        f"compiling {len(compiled)} operation{plural} took {lasted:.2g} s before the steps, not in them"
    )
    return compiled


def _run_operation(
    task: OperationsTaskProtocol, observer: AnnouncedObserver, compiled: Mapping[str, Callable[..., Any]], name: str,
    waiting: bool, counted: bool,
) -> Any:  # fmt: skip
    function, operands = compiled[name], task.operands[name]
    with observer.layer(name, name.capitalize()):
        if not counted:
            result = function(*operands)
            return result.block_until_ready() if waiting else result
        cost = task.costs[name]
        with observer.operation(f"jax.{name}", cost.flops, cost.bytes, task.dtype):
            return function(*operands).block_until_ready()


# ----------------------------------------------------------------------------------------------------------------------

PHASES = {"forward": "forward", "prefill": "prefill", "decode": "decode", "train": "fused"}
"""The phase of a call of each function."""
TRAINING_PHASES = ("forward", "loss", "backward", "optimizer")
"""Phases of a training step, on one device."""
ReadProfile = Callable[[Path], Iterable[XlaOperation]]
"""Reads the operations of XLA from a folder in which JAX left a profile."""


class JaxNetworkTask(Protocol):
    """A network that is ready to run."""

    @property
    def train(self) -> bool: ...

    @property
    def dtype(self) -> str: ...

    @property
    def costs(self) -> Sequence[StepCost]: ...

    def functions(self) -> Mapping[str, tuple[Any, tuple[Any, ...]]]:
        """Jitted functions by name, not compiled yet, each with arguments."""

    def step(self, runner: Any) -> Any: ...


def drive_network(
    task: JaxNetworkTask, observer: AnnouncedObserver, jax: Any, how: Driving, classes: Mapping[str, str],
    read_profile: ReadProfile,
) -> int:  # fmt: skip
    """Run inference or training; returns the number of timed steps.

    `classes` are those of all layers by path, that of the network ('') among them.
    """
    part = "train" if task.train else "test"
    runner = _Runner(task, observer, jax)

    def step() -> None:
        with observer.span("step", part):
            task.step(runner)

    done = run_steps(observer, how, step, lambda recorded: record_kernels(observer, jax, how, recorded))
    if how.replay:
        return done
    timed_layers = _profile_layers(observer, jax, runner, step, classes, task.costs, read_profile)
    count_step(observer, part, [_attribute_cost(cost, timed_layers, classes) for cost in task.costs], "jax", task.dtype)
    return done


def _attribute_cost(cost: StepCost, timed_layers: Collection[tuple[str, str]], classes: Mapping[str, str]) -> StepCost:
    """The cost under the layer that has its time: where layers were fused, the layer around them."""
    path = cost.path
    while path and (cost.phase, path) not in timed_layers:
        path = path.rpartition(".")[0]
    if not path or path == cost.path:
        return cost
    return move_cost(cost, path, classes[path])


class _Runner:
    """Compiles and runs functions, and announces their phases. While it is `noting`, it lists its calls instead."""

    def __init__(self, task: JaxNetworkTask, observer: AnnouncedObserver, jax: Any) -> None:
        self.observer = observer
        self.jax = jax
        self.compiled: dict[str, Any] = {}
        self.noting = False
        self.calls: list[tuple[str, int, int]] = []
        """Name, begin and end (ns) of every call while it was `noting`."""
        begin = perf_counter_ns()
        for name, (function, arguments) in task.functions().items():
            with observer.span("compile", name):
                self.compiled[name] = function.lower(*arguments).compile()
        lasted = (perf_counter_ns() - begin) / 1e9
        plural = "s" if len(self.compiled) > 1 else ""
        observer.notes.append(
            f"compiling {len(self.compiled)} function{plural} took {lasted:.2g} s before the steps, not in them"
        )

    def phase(self, name: str) -> AbstractContextManager[None]:
        return self.observer.phase(name)

    def call(self, name: str, *arguments: Any) -> Any:
        function = self.compiled[name]
        if self.noting:
            begin = perf_counter_ns()
            result = self.jax.block_until_ready(function(*arguments))
            self.calls.append((name, begin, perf_counter_ns()))
            return result
        with self._announce(name):
            return self.jax.block_until_ready(function(*arguments))

    @contextmanager
    def _announce(self, name: str) -> Iterator[None]:
        phase = PHASES[name]
        with self.observer.phase(phase):
            if phase == "fused":
                yield
            else:
                with self.observer.layer(""):
                    yield


def _profile_layers(
    observer: AnnouncedObserver, jax: Any, runner: _Runner, step: Callable[[], None], classes: Mapping[str, str],
    costs: Sequence[StepCost], read_profile: ReadProfile,
) -> set[tuple[str, str]]:  # fmt: skip
    """Run steps under JAX's profiler, and write their phases and layers; a note says why where there are none.

    Returns phase and path of every layer that has time of its own.
    """
    folder = Path(observer.recorder.directory) / "jax-profile"
    runner.noting = True
    try:
        with write_profile(jax, folder), observer.span("pass", "pieces"):
            for _ in range(PIECES_STEPS):
                step()
        profiled_runs = split_runs(read_profile(folder))
    except Exception as error:
        observer.notes.append(
            f"phases and layers of compiled steps are missing: JAX's profiler failed: {first_line(error)}"
        )
        return set()
    finally:
        runner.noting = False
        shutil.rmtree(folder, ignore_errors=True)
    expected = [f"jit_{name}" for name, _, _ in runner.calls]
    profiled_runs = [(module, operations) for module, operations in profiled_runs if module in expected]
    if [module for module, _ in profiled_runs] != expected:
        counts = f"{len(profiled_runs)} of {len(expected)}"
        observer.notes.append(f"phases and layers of compiled steps are missing: JAX's profile holds {counts} calls")
        return set()
    modules = {name: read_module(compiled.as_text()) for name, compiled in runner.compiled.items()}
    located = {
        name: locate_instructions(module, lambda instruction: place_of(instruction.scopes, classes))
        for name, module in modules.items()
    }
    loss = next((cost.class_name for cost in costs if cost.phase == "loss"), "")
    holders = find_containers(classes)
    attributed = lasted = 0
    timed_layers: set[tuple[str, str]] = set()
    for (name, begin, end), (_, operations) in zip(runner.calls, profiled_runs, strict=True):
        phase = PHASES[name]
        operations = name_by_instruction(operations, modules[name])
        times = time_by_place(exclusive_times(operations), located[name], "" if phase == "fused" else phase)
        pieces = order_pieces(times, loss, classes, TRAINING_PHASES if phase == "fused" else (phase,))
        write_call(observer, begin, end, pieces, holders)
        timed_layers.update((piece.phase, piece.path) for piece in pieces)
        attributed += sum(piece.lasted for piece in pieces)
        lasted += end - begin
    percent = f"{100 * attributed / lasted:.0f} %"
    observer.notes.append(
        f"layers are those of the same compiled function under JAX's profiler, which tells {percent} "
        "of its time apart: what XLA fused counts for the layer of its product, or for the layer around several"
    )
    return timed_layers
