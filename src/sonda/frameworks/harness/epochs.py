"""Drives a whole training in a framework whose compiled functions are announced: epochs, validation, then the test.

The loop is that of `torch/drive/epochs.py`. A step ends when its results are there: these frameworks dispatch work
asynchronously, and a step that did not wait would last only as long as the dispatch. Losses and right answers are added
up in Python, because adding on a device would be compiled too. A training step is one function (the phase `fused`), an
evaluating step is a `forward`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from time import perf_counter_ns
from typing import Any, Protocol

from sonda.frameworks.harness.announcer import AnnouncedObserver
from sonda.frameworks.harness.course import RECORDED, Course
from sonda.record.training import Walk


class EpochLearner(Protocol):
    """A network that learns batch by batch. Losses are means over a batch; results are ready when a call returns."""

    def ready(self, inputs: Any, targets: Any, train: bool) -> None:
        """Compile for batches of this shape. Weights do not change."""

    def learn(self, inputs: Any, targets: Any) -> Any:
        """Make one training step, which updates the weights; the loss."""

    def judge(self, inputs: Any, targets: Any) -> tuple[Any, Any]:
        """Evaluate a batch: the loss and the number of right answers."""


class EpochBatchesProtocol(Protocol):
    """The data of a training."""

    def steps(self, part: str) -> int: ...

    def sizes(self) -> dict[str, list[int]]: ...

    def chosen(self, part: str, epoch: int) -> list[list[int]]: ...

    def made(self, numbers: list[int]) -> tuple[Any, Any]: ...

    def batches(self, part: str, epoch: int) -> Iterator[tuple[Any, Any]]: ...


def compile_shapes(learner: EpochLearner, batches: EpochBatchesProtocol, observer: AnnouncedObserver) -> None:
    """Compile for every shape of batch before anything is timed, in spans `compile`."""
    for part, sizes in batches.sizes().items():
        if part == "test" and batches.sizes().get("validate") == sizes:
            continue
        for size in sizes:
            numbers = batches.chosen(part, 0)[0][:size]
            name = "training" if part == "train" else "evaluation"
            with observer.span("compile", f"{name} of {size}"):
                learner.ready(*batches.made(numbers), train=part == "train")


Together = Callable[[list[float]], list[float]]
"""Adds up the numbers of all processes; gives the numbers themselves where there is one process."""


def drive_epochs(
    learner: EpochLearner, batches: EpochBatchesProtocol, observer: AnnouncedObserver, course: Course,
    together: Together = lambda numbers: numbers,
) -> list[Walk]:  # fmt: skip
    """Train to the end of the course; a walk for every part of every epoch."""
    driver = _EpochDriver(learner, batches, observer, course, together)
    for epoch in range(course.epochs):
        driver.walk("train", epoch)
        if course.sizes["validate"]:
            driver.walk("validate", epoch)
    if course.sizes["test"]:
        driver.walk("test", course.epochs)
    return driver.walks


class _EpochDriver:
    def __init__(
        self,
        learner: EpochLearner,
        batches: EpochBatchesProtocol,
        observer: AnnouncedObserver,
        course: Course,
        together: Together,
    ) -> None:
        self.learner, self.batches, self.observer, self.course = learner, batches, observer, course
        self.together = together
        self.walks: list[Walk] = []
        self.trained = 0
        """Training steps so far."""

    def walk(self, part: str, epoch: int) -> None:
        """Go once through the batches of a part, and append the walk."""
        trains = part == "train"
        steps = self.batches.steps(part)
        results: list[tuple[Any, Any, int]] = []
        begin = perf_counter_ns()
        with self.observer.span("epoch", part):
            batches = self.batches.batches(part, epoch)
            for step in range(steps):
                recorded = self._is_recorded()
                with self.observer.span("step", part) if recorded else nullcontext():
                    with self._phase("data", recorded):
                        inputs, targets = next(batches)
                    with self._phase("fused" if trains else "forward", recorded):
                        if trains:
                            loss, hits = self.learner.learn(inputs, targets), 0
                        else:
                            loss, hits = self.learner.judge(inputs, targets)
                    results.append((loss, hits, len(targets)))
                self.trained += trains
                self.course.tell(part, epoch, step + 1, steps, self.walks)
            lost, right, seen = self.together(
                [
                    sum(float(loss) * count for loss, _, count in results if count),
                    float(sum(int(hits) for _, hits, _ in results)),
                    float(sum(count for _, _, count in results)),
                ]
            )
            samples = round(seen)
        self.walks.append(
            Walk(
                part=part,
                epoch=epoch,
                begin=begin,
                end=perf_counter_ns(),
                samples=samples,
                loss=lost / samples,
                accuracy=None if trains else right / samples,
            )
        )

    def _is_recorded(self) -> bool:
        """Whether the next step is recorded. Later ones are not, so that the file of any training stays bounded."""
        if self.trained == RECORDED:
            note = f"steps and phases recorded for the first {RECORDED:,} steps only"
            self.observer.notes += [note] if note not in self.observer.notes else []
        return self.trained < RECORDED

    def _phase(self, name: str, recorded: bool) -> AbstractContextManager[None]:
        return self.observer.phase(name) if recorded else nullcontext()
