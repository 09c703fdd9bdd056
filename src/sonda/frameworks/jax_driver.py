"""Drives operations in JAX: compile, warm up, timed steps, steps whose kernels are recorded, a step that is counted.

A step runs every operation once. On a processor each is waited for, so that its layer has its time. On a GPU nothing is
waited for inside a timed step but its end: a step lasts from the first call until all results are there, launching and
one wait included; what each operation took on the device is known from its kernels, in steps of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter_ns
from typing import Any

from sonda.frameworks.announced import AnnouncedObserver
from sonda.frameworks.announced_steps import run_steps
from sonda.frameworks.counted_step import OperationsTask
from sonda.frameworks.driving import Driving
from sonda.frameworks.jax_kernels import record_kernels

PART = "test"


def drive(task: OperationsTask, observer: AnnouncedObserver, jax: Any, how: Driving) -> int:
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


def _compiled(task: OperationsTask, observer: AnnouncedObserver) -> dict[str, Callable[..., Any]]:
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
    task: OperationsTask, observer: AnnouncedObserver, compiled: Mapping[str, Callable[..., Any]], name: str,
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
