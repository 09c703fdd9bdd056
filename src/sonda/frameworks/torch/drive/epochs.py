"""Drives a whole training in PyTorch: epochs of training and validation, then the test.

The loop is what anybody would write. Nothing waits for a GPU within an epoch: losses and right answers are added up on
the device and asked for once, at its end. Who trains (one device, or one rank of several) is a `Learner`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, nullcontext
from math import isnan
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from sonda.frameworks.harness.course import RECORDED, Course
from sonda.frameworks.harness.settings import KERNEL_STEPS, Driving
from sonda.frameworks.torch.drive.steps import Training, loop_of
from sonda.record.errors import SondaError
from sonda.record.training import Walk

if TYPE_CHECKING:
    from sonda.frameworks.torch.observe.observer import TorchObserver

DETAILED = 20
"""Steps of training whose layers are recorded."""


class Batch(NamedTuple):
    """What one step is given. `weight` is how many samples the value of the loss stands for, `counted` how many are
    this rank's to count."""

    inputs: tuple[Any, ...]
    target: Any
    labels: Any
    weight: float
    counted: int


class Learner(Protocol):
    """Whoever trains: its task with the model, its batches, and what it does together with others."""

    task: Any
    plain: Any
    """The model as it was made, before anybody wrapped it."""

    def steps(self, part: str) -> int:
        """How many batches a walk through a share has; of training, the same on every rank."""

    def batches(self, part: str, epoch: int) -> Generator[Batch]:
        """The batches of a walk."""

    def judge(self, output: Any, batch: Batch) -> tuple[Any, Any]:
        """Sum of the losses, and right answers, of an evaluated batch, on the device; NaN where nobody can tell."""

    def together(self, numbers: list[float]) -> list[float]:
        """Sums over all ranks."""

    def gather(self) -> None:
        """Make `plain` whole and equal on every rank, as a checkpoint needs it."""


def drive_epochs(
    make: Callable[[], Learner],
    observer: TorchObserver,
    how: Driving,
    course: Course,
    restore: Callable[[Any, Any], None],
) -> tuple[list[Walk], Learner]:
    """Train to the end of the course; the walks of this process, and who trained.

    `restore(model, loop)` puts an earlier state back, before the first step.
    """
    learner = make()
    loop = loop_of(learner.task, observer, how)
    assert isinstance(loop, Training)
    restore(learner.plain, loop)
    driver = _Driver(learner, loop, observer, course)
    for epoch in range(course.done, course.epochs):
        driver.walk("train", epoch)
        if course.sizes["validate"]:
            driver.walk("validate", epoch)
        learner.gather()
        course.keep(epoch + 1, learner, loop, driver.walks)
    if course.sizes["test"]:
        driver.walk("test", course.epochs)
    learner.gather()
    course.end(learner)
    driver.count()
    return driver.walks, learner


class _Driver:
    def __init__(self, learner: Learner, loop: Training, observer: TorchObserver, course: Course) -> None:
        self.learner, self.loop, self.observer, self.course = learner, loop, observer, course
        self.walks: list[Walk] = []
        self.trained = 0
        """Steps of training."""

    def walk(self, part: str, epoch: int) -> None:
        """One walk through a share, kept in `walks`."""
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
                        loss, hits = learner.judge(self.loop.answer(batch.inputs), batch)
                        lost += loss
                        right += hits
                    samples += batch.counted
                self.trained += part == "train"
                self.course.tell(part, epoch, step + 1, steps, self.walks)
            for _ in batches:  # whoever made them may have something to do after the last
                raise AssertionError("a walk has more batches than it said")
            # The first question to the device since the walk began.
            all_lost, all_right, count = learner.together([float(lost), float(right), samples])
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

    def count(self) -> None:
        """Steps of their own at the end, on weights that nobody keeps: of a GPU's kernels, and the counted one."""
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
        with observer.counted(self.loop.state()):
            step()
        batches.close()
