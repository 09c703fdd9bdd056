"""Drives a network in JAX: compile, warm up, timed steps, steps that JAX profiles, a step that is counted by formula.

A timed step is what anybody would write: one jitted function that is given a batch, and whose result is waited for. A
training step is therefore one phase, `fused`. Phases and layers are those of a few steps of their own (the pass
`pieces`), the same compiled function under JAX's profiler. On a GPU the kernels of a few more steps are recorded: they
belong to the call of the function that launched them.
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
from sonda.frameworks.jax.profile.cuda_graphs import by_instruction
from sonda.frameworks.jax.profile.hlo import read_module
from sonda.frameworks.jax.profile.operations import Operation, by_place, exclusive, place_of, places, profiled, runs

# ---- Kernels of a few steps of a JAX program: its own profiler around them, and what is said of the GPU -------------

TRACE = ProfileFile("JAX", "trace", ".trace.json.gz", "jax.kernels.json.gz")


def recorded_by(recorder: Recorder, jax: Any) -> AbstractContextManager[None]:
    """Record the kernels of what runs in this block."""
    start, mark = (partial(one, jax.profiler) for one in (start_trace, mark_clock))
    return profile_kernels(recorder, Profiler(TRACE, start, mark, jax.profiler.stop_trace))


def record_kernels(observer: AnnouncedObserver, jax: Any, how: Driving, step: Callable[[], None]) -> None:
    """Run steps of their own whose kernels are recorded, and say which GPU it was."""
    with recorded_by(observer.recorder, jax), observer.span("pass", "kernels"):
        for _ in range(KERNEL_STEPS):
            step()
    _state_device(observer.recorder, jax, how.device)


def _state_device(recorder: Recorder, jax: Any, device: str) -> None:
    """Which GPU it was, and the most of its memory that JAX held."""
    number = device.partition(":")[2] or "0"
    one = jax.devices()[int(number)]
    memory = one.memory_stats() or {}
    peak = memory.get("peak_bytes_in_use", 0)
    held = memory.get("peak_pool_bytes", memory.get("pool_bytes", peak))
    about = {"name": one.device_kind, "peak_allocated": peak, "peak_reserved": max(held, peak)}
    recorder.state(devices={number: about})


# ---- Drives operations in JAX: compile, warm up, timed steps, steps whose kernels are recorded, a step that ---------

PART = "test"


def drive(task: OperationsTaskProtocol, observer: AnnouncedObserver, jax: Any, how: Driving) -> int:
    """Run the task as asked; returns the number of timed steps."""
    compiled = _compiled(task, observer)

    def step(wait: bool = not how.on_gpu, counted: bool = False) -> None:
        """`wait`: for every operation by itself."""
        with observer.span("step", PART):
            with observer.phase("forward"), observer.layer(""):
                results = [_run(task, observer, compiled, name, wait, counted) for name in task.names]
                jax.block_until_ready(results)

    def record(waiting: Callable[[], None]) -> None:
        record_kernels(observer, jax, how, waiting)

    done = run_steps(observer, how, step, record, lambda: step(wait=True))
    if how.replay:
        return done
    with observer.span("pass", "count"):
        step(wait=True, counted=True)
    return done


def _compiled(task: OperationsTaskProtocol, observer: AnnouncedObserver) -> dict[str, Callable[..., Any]]:
    """Every operation compiled by itself, before anything is timed."""
    begin = perf_counter_ns()
    found = {}
    for name in task.names:
        with observer.span("compile", name):
            found[name] = task.functions[name].lower(*task.operands[name]).compile()
    lasted = (perf_counter_ns() - begin) / 1e9
    plural = "s" if len(found) > 1 else ""
    observer.notes.append(f"compiling {len(found)} operation{plural} took {lasted:.2g} s before the steps, not in them")
    return found


def _run(
    task: OperationsTaskProtocol, observer: AnnouncedObserver, compiled: Mapping[str, Callable[..., Any]], name: str,
    wait: bool, counted: bool,
) -> Any:  # fmt: skip
    function, operands = compiled[name], task.operands[name]
    with observer.layer(name, name.capitalize()):
        if not counted:
            result = function(*operands)
            return result.block_until_ready() if wait else result
        cost = task.costs[name]
        with observer.operation(f"jax.{name}", cost.flops, cost.bytes, task.dtype):
            return function(*operands).block_until_ready()


# ----------------------------------------------------------------------------------------------------------------------

PHASES = {"forward": "forward", "prefill": "prefill", "decode": "decode", "train": "fused"}
"""The phase that a call of each function is."""
FUSED = ("forward", "loss", "backward", "optimizer")
"""Phases of a training step, on one device."""
ReadProfile = Callable[[Path], Iterable[Operation]]
"""Reads the operations of XLA from a folder in which JAX left a profile."""


class NetworkTask(Protocol):
    """A network that is ready to run."""

    @property
    def train(self) -> bool: ...

    @property
    def dtype(self) -> str: ...

    @property
    def costs(self) -> Sequence[StepCost]: ...

    def functions(self) -> Mapping[str, tuple[Any, tuple[Any, ...]]]:
        """Jitted, not compiled yet, with arguments."""

    def step(self, runner: Any) -> Any: ...


def drive_network(
    task: NetworkTask, observer: AnnouncedObserver, jax: Any, how: Driving, classes: Mapping[str, str],
    read: ReadProfile,
) -> int:  # fmt: skip
    """Run the task as asked; returns the number of timed steps. `classes`: of all layers by path, '' among them."""
    part = "train" if task.train else "test"
    runner = _Runner(task, observer, jax)

    def step() -> None:
        with observer.span("step", part):
            task.step(runner)

    done = run_steps(observer, how, step, lambda one: record_kernels(observer, jax, how, one))
    if how.replay:
        return done
    seen = _in_pieces(observer, jax, runner, step, classes, task.costs, read)
    count_step(observer, part, [_where_it_ran(cost, seen, classes) for cost in task.costs], "jax", task.dtype)
    return done


def _where_it_ran(cost: StepCost, seen: Collection[tuple[str, str]], classes: Mapping[str, str]) -> StepCost:
    """The cost under the layer that has its time: where layers were fused, that is the one around them."""
    path = cost.path
    while path and (cost.phase, path) not in seen:
        path = path.rpartition(".")[0]
    if not path or path == cost.path:
        return cost
    return move_cost(cost, path, classes[path])


class _Runner:
    """Runs compiled functions and announces them; while it `notes` calls, phases are left to whoever reads these."""

    def __init__(self, task: NetworkTask, observer: AnnouncedObserver, jax: Any) -> None:
        self.observer = observer
        self.jax = jax
        self.compiled: dict[str, Any] = {}
        self.noting = False
        self.calls: list[tuple[str, int, int]] = []
        """Name, begin and end (ns) of every call while they were noted."""
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
        with self._announced(name):
            return self.jax.block_until_ready(function(*arguments))

    @contextmanager
    def _announced(self, name: str) -> Iterator[None]:
        phase = PHASES[name]
        with self.observer.phase(phase):
            if phase == "fused":
                yield
            else:
                with self.observer.layer(""):
                    yield


def _in_pieces(
    observer: AnnouncedObserver, jax: Any, runner: _Runner, step: Callable[[], None], classes: Mapping[str, str],
    costs: Sequence[StepCost], read: ReadProfile,
) -> set[tuple[str, str]]:  # fmt: skip
    """Steps under JAX's profiler, with the phases and layers that it gives; a note where it gives none.

    Returns phase and path of every layer that has time of its own.
    """
    folder = Path(observer.recorder.directory) / "jax-profile"
    runner.noting = True
    try:
        with profiled(jax, folder), observer.span("pass", "pieces"):
            for _ in range(PIECES_STEPS):
                step()
        found = runs(read(folder))
    except Exception as error:
        observer.notes.append(
            f"phases and layers of compiled steps are missing: JAX's profiler failed: {first_line(error)}"
        )
        return set()
    finally:
        runner.noting = False
        shutil.rmtree(folder, ignore_errors=True)
    named = [f"jit_{name}" for name, _, _ in runner.calls]
    found = [(module, operations) for module, operations in found if module in named]
    if [module for module, _ in found] != named:
        observer.notes.append(
            f"phases and layers of compiled steps are missing: JAX's profile holds {len(found)} of {len(named)} calls"
        )
        return set()
    modules = {name: read_module(one.as_text()) for name, one in runner.compiled.items()}
    known = {name: places(module, lambda inside: place_of(inside.scopes, classes)) for name, module in modules.items()}
    loss = next((cost.class_name for cost in costs if cost.phase == "loss"), "")
    holders = find_containers(classes)
    covered = spent = 0
    seen: set[tuple[str, str]] = set()
    for (name, begin, end), (_, operations) in zip(runner.calls, found, strict=True):
        phase = PHASES[name]
        operations = by_instruction(operations, modules[name])
        times = by_place(exclusive(operations), known[name], "" if phase == "fused" else phase)
        pieces = order_pieces(times, loss, classes, FUSED if phase == "fused" else (phase,))
        write_call(observer, begin, end, pieces, holders)
        seen.update((piece.phase, piece.path) for piece in pieces)
        covered += sum(piece.lasted for piece in pieces)
        spent += end - begin
    observer.notes.append(
        f"layers are those of the same compiled function under JAX's profiler, which tells {100 * covered / spent:.0f} "
        "% of its time apart: what XLA fused counts for the layer of its product, or for the layer around several"
    )
    return seen
