"""Drives a model in TensorFlow whose inside is somebody else's: trace, warm up, timed steps.

A step is one `tf.function`. Its layers have no times, and nothing in it is counted. On a GPU the kernels of a few steps
are recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import Any, Protocol

from sonda.frameworks.announced import AnnouncedObserver
from sonda.frameworks.announced_steps import run_steps
from sonda.frameworks.driving import Driving
from sonda.frameworks.tensorflow_driver import wait
from sonda.frameworks.tensorflow_kernels import record_kernels


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
