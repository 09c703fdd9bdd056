"""Drives a network under a strategy of TensorFlow's: trace, warm up, timed steps, steps under TensorFlow's profiler.

A timed step is a call of one `tf.function` around `Strategy.run`, as programs write it: one phase, `fused`. Phases and
layers, `communicate` among them, come from a few more steps (the pass `pieces`), which run the same graph under
TensorFlow's profiler. On parameter servers a step runs in other processes: what they exchange is timed by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from time import perf_counter_ns
from typing import Any, Protocol

from sonda.frameworks.harness.announcer import AnnouncedObserver
from sonda.frameworks.harness.attribution import LOSS
from sonda.frameworks.harness.counted_step import StepCost, count_step
from sonda.frameworks.harness.settings import Driving, has_enough_steps, time_steps
from sonda.frameworks.harness.steps import PIECES_STEPS, warm_up
from sonda.frameworks.tensorflow.drive.profiled_steps import ReadProfile, attribute_cost, profile_steps
from sonda.frameworks.tensorflow.drive.steps import wait

STEP = "_step"
"""The name of the `tf.function` that is a step."""


class StrategyTask(Protocol):
    """A network whose batches replicas share."""

    @property
    def weights(self) -> Mapping[str, Any]: ...

    @property
    def dtype(self) -> str: ...

    def ready(self, parts: Any, whole: int) -> Any: ...

    def learn(self, batch: Any) -> Any: ...

    def mean(self, value: float) -> float:
        """The mean of the numbers that all processes give. All processes must call it."""

    def exchange(self) -> bool:
        """Exchange what a step exchanges, without computing. False where this is not needed: the profile shows it."""


@dataclass
class StrategySteps:
    """The steps that were driven, and times of the profiled steps or of exchanges by themselves."""

    steps: int = 0
    """Timed steps."""
    work_ns: list[int] = field(default_factory=list)
    """Of each profiled step."""
    communication_ns: list[int] = field(default_factory=list)
    """Of each profiled step, or of each exchange."""


def drive_strategy(
    task: StrategyTask, batches: Callable[[], Iterator[Any]], whole: int, costs: Sequence[StepCost],
    classes: Mapping[str, str], observer: AnnouncedObserver, tf: Any, how: Driving, read_profile: ReadProfile,
) -> StrategySteps:  # fmt: skip
    """Train. `batches` begins anew an endless row of this process' shares, each of a batch of `whole` samples.

    `classes` are those of all layers by path, that of the network ('') among them.
    """
    first = task.ready(next(batches()), whole)
    begin = perf_counter_ns()
    with observer.span("compile", "training"):
        # TensorFlow optimises a graph when it first runs. The weights are put back afterwards.
        initial = {name: weight.read_value() for name, weight in task.weights.items()}
        _wait_for_replicas(task.learn(first))
        second_begin = perf_counter_ns()
        _wait_for_replicas(task.learn(first))
        lasted = task.mean((perf_counter_ns() - second_begin) / 1e9)
        for name, weight in task.weights.items():
            weight.assign(initial[name])
    _note_once(
        observer,
        f"tracing a function and running it twice took {(perf_counter_ns() - begin) / 1e9:.2g} s before the steps, "
        "not in them",
    )
    shares = batches()

    def step() -> None:
        with observer.span("step", "train"):
            with observer.phase("data"):
                batch = task.ready(next(shares), whole)
            with observer.phase("fused"):
                _wait_for_replicas(task.learn(batch))

    def timed_step() -> tuple[int, int]:
        with observer.span("step", "train"):
            with observer.phase("data"):
                batch = task.ready(next(shares), whole)
            begun = perf_counter_ns()
            _wait_for_replicas(task.learn(batch))
            return begun, perf_counter_ns()

    warm_up(observer, how, step)
    # All processes run the same number of steps, or some would wait for others for ever.
    driven = StrategySteps(steps=time_steps(_plan_steps(how, lasted), step))
    if not _time_exchange(task, observer, driven):
        loss = next((cost.class_name for cost in costs if cost.phase == LOSS), "")
        profiled = profile_steps(observer, tf, timed_step, STEP, classes, loss, read_profile)
        driven.work_ns, driven.communication_ns = profiled.work_ns, profiled.communication_ns
        costs = [attribute_cost(cost, profiled.layers, classes) for cost in costs]
        if profiled.missing:
            observer.notes.append(f"phases and layers of a step are missing: {profiled.missing}")
        else:
            _note_once(
                observer,
                "layers are those of the same graph under TensorFlow's profiler, which tells "
                f"{100 * profiled.share:.0f} % of its time apart: what is fused counts for the layer of its product, "
                "and a moment in which replicas work side by side counts once",
            )
    count_step(observer, "train", costs, "tensorflow", task.dtype)
    return driven


def _note_once(observer: AnnouncedObserver, note: str) -> None:
    """Add a note that holds for all ranks alike, on the first rank only."""
    if observer.rank == 0:
        observer.notes.append(note)


def _wait_for_replicas(results: Any) -> None:
    """Wait until all replicas of this process are done."""
    for result in results:
        wait(result)


def _plan_steps(how: Driving, lasted: float) -> Driving:
    """Fix the number of steps: those that were asked for, or as many of `lasted` s each as fit into the time."""
    steps = 0
    while not has_enough_steps(steps, steps * lasted, how):
        steps += 1
    return replace(how, steps=steps)


def _time_exchange(task: StrategyTask, observer: AnnouncedObserver, driven: StrategySteps) -> bool:
    """Time what workers exchange with parameter servers, by itself; False where the profile of a step shows it."""
    times = []
    for _ in range(PIECES_STEPS + 1):
        begin = perf_counter_ns()
        if not task.exchange():
            return False
        times.append(perf_counter_ns() - begin)
    driven.communication_ns = times[1:]  # the first traces a function
    median_ms = median(driven.communication_ns) / 1e6
    observer.notes.append(
        f"reading all weights from the servers and writing gradients back takes {median_ms:.3g} ms, "
        f"the median of {PIECES_STEPS} steps that do nothing else; inside a step a part of it overlaps with computing"
    )
    observer.notes.append("phases and layers are not recorded: a step runs on workers, the coordinator sees it whole")
    return True
