"""Drives a whole training in PyTorch: epochs of training and validation, then the test.

The loop is the usual one. Nothing waits for a GPU within an epoch: losses and right answers are summed on the device
and read once, at its end. A `Learner` trains: one device, or one rank of several.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, nullcontext
from math import isnan
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from sonda.frameworks.harness.course import RECORDED, Course
from sonda.frameworks.harness.settings import KERNEL_STEPS, Driving
from sonda.frameworks.torch.drive.steps import TrainingLoop, make_loop
from sonda.record.errors import SondaError
from sonda.record.training import Walk

if TYPE_CHECKING:
    from sonda.frameworks.torch.observe.observer import TorchObserver

DETAILED = 20
"""Number of training steps whose layers are recorded."""


class StepBatch(NamedTuple):
    """The batch of one step. The value of the loss stands for `weight` samples; `counted` of them are this rank's."""

    inputs: tuple[Any, ...]
    target: Any
    labels: Any
    weight: float
    counted: int


class Learner(Protocol):
    """One that trains: its task with the model, its batches, and its exchanges with other ranks."""

    task: Any
    plain: Any
    """The model without its wrappers."""

    def steps(self, part: str) -> int:
        """Number of batches of a walk through a part of the data; for training, the same on every rank."""

    def batches(self, part: str, epoch: int) -> Generator[StepBatch]:
        """The batches of a walk."""

    def judge(self, output: Any, batch: StepBatch) -> tuple[Any, Any]:
        """Sum of losses and number of right answers of an evaluated batch, on the device; NaN where unknown."""

    def sum_over_ranks(self, numbers: list[float]) -> list[float]:
        """Sums over all ranks."""

    def gather_weights(self) -> None:
        """Make `plain` complete and equal on every rank, as a checkpoint needs it."""


def drive_epochs(
    make: Callable[[], Learner],
    observer: TorchObserver,
    how: Driving,
    course: Course,
    restore: Callable[[Any, Any], None],
) -> tuple[list[Walk], Learner]:
    """Train to the end of the course. Returns the walks of this process, and the learner.

    `restore(model, loop)` restores an earlier state before the first step.
    """
    learner = make()
    loop = make_loop(learner.task, observer, how)
    assert isinstance(loop, TrainingLoop)
    restore(learner.plain, loop)
    driver = _EpochDriver(learner, loop, observer, course)
    for epoch in range(course.done, course.epochs):
        driver.walk("train", epoch)
        if course.sizes["validate"]:
            driver.walk("validate", epoch)
        learner.gather_weights()
        course.keep(epoch + 1, learner, loop, driver.walks)
    if course.sizes["test"]:
        driver.walk("test", course.epochs)
    learner.gather_weights()
    course.end(learner)
    driver.run_extra_steps()
    return driver.walks, learner


class _EpochDriver:
    def __init__(self, learner: Learner, loop: TrainingLoop, observer: TorchObserver, course: Course) -> None:
        self.learner, self.loop, self.observer, self.course = learner, loop, observer, course
        self.walks: list[Walk] = []
        self.trained = 0
        """Number of training steps done."""

    def walk(self, part: str, epoch: int) -> None:
        """Walk once through a part of the data, and append the result to `walks`."""
        import torch

        learner = self.learner
        learner.task.model.train(part == "train")
        device = next(learner.plain.parameters()).device
        lost = torch.zeros((), dtype=torch.float64, device=device)
        right = torch.zeros((), dtype=torch.float64, device=device)
        steps = learner.steps(part)
        begin = perf_counter_ns()
        with self.observer.span("epoch", part):
            batches = learner.batches(part, epoch)
            samples = 0.0
            for step in range(steps):
                with self._step(part):
                    batch = next(batches)
                    if part == "train":
                        lost += self.loop.learn(batch.inputs, batch.target).double() * batch.weight
                    else:
                        loss, right_answers = learner.judge(self.loop.answer(batch.inputs), batch)
                        lost += loss
                        right += right_answers
                    samples += batch.counted
                self.trained += part == "train"
                self.course.tell(part, epoch, step + 1, steps, self.walks)
            for _ in batches:  # lets the generator run to its end
                raise AssertionError("a walk has more batches than it said")
            # The first read from the device since the walk began.
            all_lost, all_right, count = learner.sum_over_ranks([float(lost), float(right), samples])
        accuracy = None if part == "train" or isnan(all_right) else all_right / count
        if accuracy is not None and not 0 <= accuracy <= 1 + 1e-9:
            raise SondaError(f"the accuracy of {part} is {accuracy:g}", "let it be the share of right answers, 0 to 1")
        self.walks.append(
            Walk(
                part=part,
                epoch=epoch,
                begin=begin,
                end=perf_counter_ns(),
                samples=round(count),
                loss=all_lost / count,
                accuracy=accuracy,
            )
        )

    def _step(self, part: str) -> AbstractContextManager[Any]:
        schedule = self.observer.schedule
        if self.trained == RECORDED and not schedule.over:
            schedule.over = True
            schedule.notes.append(f"steps and phases recorded for the first {RECORDED:,} steps only")
        return nullcontext() if schedule.over else self.observer.span("step", part)

    def run_extra_steps(self) -> None:
        """Run the steps whose kernels are recorded, and the counted step, on weights that are not kept."""
        observer, learner = self.observer, self.learner
        observer.schedule.over, observer.schedule.last, observer.schedule.detail = False, 0, True
        observer.recorder.set_detail(True)
        learner.task.model.train(True)
        batches = learner.batches("train", 0)
        kernels = observer.kernel_pass
        most = learner.steps("train") - 1

        def step() -> None:
            with observer.span("step", "train"):
                batch = next(batches)
                self.loop.learn(batch.inputs, batch.target)

        if kernels is not None and most > 0 and next(learner.plain.parameters()).is_cuda:
            kernels.begin(observer.recorder.stream())
            for _ in range(min(KERNEL_STEPS, most)):
                step()
            kernels.end()
        # A compiled model hides its operations, so they are counted on the model itself.
        learner.task.model = getattr(learner.task.model, "_orig_mod", learner.task.model)
        with observer.count_operations(self.loop.state()):
            step()
        batches.close()
