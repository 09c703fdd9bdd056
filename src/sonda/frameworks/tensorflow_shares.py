"""Drives a network under a strategy of TensorFlow's: trace, warm up, timed steps, steps under TensorFlow's profiler.

A timed step is a call of one `tf.function` around `Strategy.run`, as programs have it: one phase, `fused`. Phases and
layers, `communicate` among them, are those of a few steps of their own (the pass `pieces`), the same graph under
TensorFlow's profiler. On parameter servers a step runs in other processes: what they exchange is timed by itself.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter_ns
from typing import Any, Protocol

from sonda.frameworks.announced import AnnouncedObserver
from sonda.frameworks.announced_steps import time_steps, warm_up
from sonda.frameworks.call_pieces import Piece, write_call
from sonda.frameworks.counted_step import StepCost, count_step, under
from sonda.frameworks.tensorflow_driver import PIECES_STEPS, wait
from sonda.frameworks.tensorflow_profile import (
    COMMUNICATE,
    LOSS,
    ORDER,
    Event,
    Place,
    calls,
    place_of,
    product_before,
    profiled,
    spent,
)
from sonda.frameworks.torch_driver import Driving, enough

STEP = "_step"
"""The name of the function that is a step."""
ReadProfile = Callable[[Path], Iterable[Event]]
"""Reads the events of a folder in which TensorFlow left a profile."""


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
    noted: list[tuple[int, int]] = []
    noting = False

    def step() -> None:
        with observer.span("step", "train"):
            with observer.phase("data"):
                batch = task.ready(next(row), whole)
            if noting:
                started = perf_counter_ns()
                _wait(task.learn(batch))
                noted.append((started, perf_counter_ns()))
                return
            with observer.phase("fused"):
                _wait(task.learn(batch))

    warm_up(observer, how, step)
    # All processes do as many steps, or some would wait for others for ever.
    seen = Seen(steps=time_steps(_counted(how, lasted), step))
    ran: set[tuple[str, str]] = set()
    if _exchanged(task, observer, seen):
        costs = list(costs)
    else:
        noting = True
        folder = Path(observer.recorder.directory) / f"tensorflow-profile-{observer.rank}"
        try:
            with profiled(tf, folder), observer.span("pass", "pieces"):
                for _ in range(PIECES_STEPS):
                    step()
            ran = _in_pieces(observer, list(read(folder)), noted, classes, costs, seen)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    count_step(observer, "train", [_where_it_ran(cost, ran, classes) for cost in costs], "tensorflow", task.dtype)
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
    from dataclasses import replace

    steps = 0
    while not enough(steps, steps * lasted, how):
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


def _in_pieces(
    observer: AnnouncedObserver, events: list[Event], noted: list[tuple[int, int]], classes: Mapping[str, str],
    costs: Sequence[StepCost], seen: Seen,
) -> set[tuple[str, str]]:  # fmt: skip
    """Write phases and layers of the profiled steps; phase and path of every layer that has time of its own."""
    found = calls(events, STEP)
    if len(found) != len(noted):
        observer.notes.append(
            f"phases and layers of a step are missing: TensorFlow's profile holds {len(found)} of {len(noted)} calls"
        )
        return set()
    loss = next((cost.class_name for cost in costs if cost.phase == LOSS), "")
    holding = {path: name for path, name in classes.items() if _holds(path, classes)}
    ran: set[tuple[str, str]] = set()
    told = lasted = 0
    for (begin, end), inside in zip(noted, found, strict=True):
        pieces = pieces_of(spent(inside, lambda name: place_of(name, classes)), loss, classes)
        write_call(observer, begin, end, pieces, holding)
        ran.update((piece.phase, piece.path) for piece in pieces)
        waited = sum(piece.lasted for piece in pieces if piece.phase == COMMUNICATE)
        seen.waited.append(waited)
        seen.worked.append(end - begin - waited)
        told += sum(piece.lasted for piece in pieces)
        lasted += end - begin
    _say(
        observer,
        f"layers are those of the same graph under TensorFlow's profiler, which tells {100 * told / lasted:.0f} % of "
        "its time apart: what is fused counts for the layer of its product, and a moment in which replicas work side "
        "by side counts once",
    )
    return ran


def pieces_of(times: Mapping[Place, int], loss: str, classes: Mapping[str, str]) -> list[Piece]:
    """What a step spent by phase and layer, in the order of time; `loss` is the loss's class."""
    found = []
    for phase in ORDER:
        if phase in (LOSS, COMMUNICATE, "optimizer"):
            name = loss if phase == LOSS else ""
            found.append(Piece(phase, name, name, sum(ns for place, ns in times.items() if place.phase == phase)))
            continue
        # A forward walks through layers as the network lists them, a backward the other way round.
        paths = list(classes)
        if phase == "backward":
            paths.reverse()
            found.append(Piece(phase, loss, loss, times.get(Place(phase, LOSS), 0)))
        found += [
            Piece(phase, path, classes[path], times[Place(phase, path)])
            for path in paths
            if Place(phase, path) in times
        ]
    return found


def _where_it_ran(cost: StepCost, ran: set[tuple[str, str]], classes: Mapping[str, str]) -> StepCost:
    """The cost under the layer that has its time: what is fused with a product ran there."""
    if (cost.phase, cost.path) in ran or not ran or not cost.path:
        return cost
    path = product_before(cost.path, classes)
    return under(cost, path, classes[path]) if path in classes else cost


def _holds(path: str, classes: Mapping[str, str]) -> bool:
    """Whether a layer holds others."""
    return not path or any(other.startswith(f"{path}.") for other in classes)
