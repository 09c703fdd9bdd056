"""Drives a network under a strategy of TensorFlow's: trace, warm up, timed steps, steps under TensorFlow's profiler.

A timed step is a call of one `tf.function` around `Strategy.run`, as programs have it: one phase, `fused`. Phases and
layers, `communicate` among them, are those of a few steps of their own (the pass `pieces`), the same graph under
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
from sonda.frameworks.tensorflow.drive.pieces import ReadProfile, steps_in_pieces, where_it_ran
from sonda.frameworks.tensorflow.drive.workload import wait

STEP = "_step"
"""The name of the function that is a step."""


class SharedTask(Protocol):
    """A network whose batches replicas share."""

    @property
    def weights(self) -> Mapping[str, Any]: ...

    @property
    def dtype(self) -> str: ...

    def ready(self, parts: Any, whole: int) -> Any: ...

    def learn(self, batch: Any) -> Any: ...

    def mean(self, value: float) -> float:
        """Of the numbers that all processes give, which all must."""

    def exchange(self) -> bool:
        """Only what a step exchanges; False where the profile of a step tells it."""


@dataclass
class Seen:
    """What steps of their own told: ns of work and of communication of each."""

    steps: int = 0
    worked: list[int] = field(default_factory=list)
    waited: list[int] = field(default_factory=list)


def drive_shares(
    task: SharedTask, batches: Callable[[], Iterator[Any]], whole: int, costs: Sequence[StepCost],
    classes: Mapping[str, str], observer: AnnouncedObserver, tf: Any, how: Driving, read: ReadProfile,
) -> Seen:  # fmt: skip
    """Train; `batches` begins an endless row of this process' shares anew, each of a batch of `whole` samples.

    `classes`: of all layers by path, '' among them.
    """
    first = task.ready(next(batches()), whole)
    begin = perf_counter_ns()
    with observer.span("compile", "training"):
        # A graph is optimised when it first runs: training then begins anew.
        kept = {name: weight.read_value() for name, weight in task.weights.items()}
        _wait(task.learn(first))
        again = perf_counter_ns()
        _wait(task.learn(first))
        lasted = task.mean((perf_counter_ns() - again) / 1e9)
        for name, weight in task.weights.items():
            weight.assign(kept[name])
    _say(
        observer,
        f"tracing a function and running it twice took {(perf_counter_ns() - begin) / 1e9:.2g} s before the steps, "
        "not in them",
    )
    row = batches()

    def step() -> None:
        with observer.span("step", "train"):
            with observer.phase("data"):
                batch = task.ready(next(row), whole)
            with observer.phase("fused"):
                _wait(task.learn(batch))

    def noted() -> tuple[int, int]:
        with observer.span("step", "train"):
            with observer.phase("data"):
                batch = task.ready(next(row), whole)
            started = perf_counter_ns()
            _wait(task.learn(batch))
            return started, perf_counter_ns()

    warm_up(observer, how, step)
    # All processes do as many steps, or some would wait for others for ever.
    seen = Seen(steps=time_steps(_counted(how, lasted), step))
    if not _exchanged(task, observer, seen):
        loss = next((cost.class_name for cost in costs if cost.phase == LOSS), "")
        inside = steps_in_pieces(observer, tf, noted, STEP, classes, loss, read)
        seen.worked, seen.waited = inside.worked, inside.waited
        costs = [where_it_ran(cost, inside.ran, classes) for cost in costs]
        if inside.missing:
            observer.notes.append(f"phases and layers of a step are missing: {inside.missing}")
        else:
            _say(
                observer,
                "layers are those of the same graph under TensorFlow's profiler, which tells "
                f"{100 * inside.share:.0f} % of its time apart: what is fused counts for the layer of its product, and "
                "a moment in which replicas work side by side counts once",
            )
    count_step(observer, "train", costs, "tensorflow", task.dtype)
    return seen


def _say(observer: AnnouncedObserver, note: str) -> None:
    """What holds for all ranks alike is said by the first."""
    if observer.rank == 0:
        observer.notes.append(note)


def _wait(results: Any) -> None:
    """Until all replicas of this process are done."""
    for one in results:
        wait(one)


def _counted(how: Driving, lasted: float) -> Driving:
    """The number of steps that fit into the time, of which one took so many s; as many as were asked for."""
    steps = 0
    while not has_enough_steps(steps, steps * lasted, how):
        steps += 1
    return replace(how, steps=steps)


def _exchanged(task: SharedTask, observer: AnnouncedObserver, seen: Seen) -> bool:
    """Time what workers exchange with parameter servers, by itself; False where the step's own profile tells it."""
    taken = []
    for _ in range(PIECES_STEPS + 1):
        begin = perf_counter_ns()
        if not task.exchange():
            return False
        taken.append(perf_counter_ns() - begin)
    seen.waited = taken[1:]  # the first traces a function
    observer.notes.append(
        f"reading all weights from the servers and writing gradients back takes {median(seen.waited) / 1e6:.3g} ms, "
        f"the median of {PIECES_STEPS} steps that do nothing else; inside a step a part of it overlaps with computing"
    )
    observer.notes.append("phases and layers are not recorded: a step runs on workers, the coordinator sees it whole")
    return True
