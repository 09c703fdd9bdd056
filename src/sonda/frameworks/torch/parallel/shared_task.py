"""Sharing: a task as one rank of several sees it, with its share of every batch and its part of the loss.

It is a `Task` like any other, so the loop that drives it is the one that drives a single device.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from math import nan
from time import perf_counter
from typing import Any

from sonda.frameworks.harness.batches import Criteria, Images, Loaders, cut_batches, cut_training_batches
from sonda.frameworks.torch.drive.epochs import Batch
from sonda.frameworks.torch.parallel.balance import Balance, Pace
from sonda.frameworks.torch.parallel.batches import PREFETCHED, SharedBatches, cut, scaled_shares
from sonda.frameworks.torch.parallel.gradients import Waiting
from sonda.frameworks.torch.parallel.group import Group
from sonda.record.errors import SondaError
from sonda.record.protocols import Mark, Task


@dataclass
class Log:
    """What a rank kept of its steps, one entry each: samples, s of work, s of waiting for others."""

    samples: list[int] = field(default_factory=list)
    worked: list[float] = field(default_factory=list)
    waited: list[float] = field(default_factory=list)
    steps: list[float] = field(default_factory=list)
    """s of the whole step; not a number where the batch was not full, which says nothing of others."""


class SharedTask:
    """One rank's view of a task. Ranks agree on shares at the same steps; every rank does every step."""

    def __init__(
        self,
        task: Task,
        model: Any,
        group: Group,
        balance: Balance,
        moving: bool = True,
        weighted: bool = True,
        after: Callable[[int, int], None] = lambda step, samples: None,
        finished: Callable[[], None] = lambda: None,
        waiting: Waiting = nullcontext,
    ) -> None:
        """`model` is the task's own, made ready for several ranks. `moving`: shares follow the ranks' speed.

        `weighted`: losses are weighted, as gradients are summed. `after(step, samples)` follows every step.
        `finished()` returns when the device has done what it was asked. `waiting()` is entered while ranks agree.
        """
        self.task = task
        self.model = model
        self.group = group
        self.balance = balance
        self.moving = moving
        self.weighted = weighted
        self.equal_weights = False
        """Whether every rank counts alike, however few its samples: an average without weights, for comparison."""
        self.after = after
        self.finished = finished
        self.waiting = waiting
        self.inputs = task.inputs
        self.samples = balance.batch
        self.tokens = task.tokens
        self.phase_tokens = task.phase_tokens
        self.log = Log()
        self.pace = Pace()
        self.step = 0
        """Steps that are done."""
        self.last: int | None = None
        """From so many steps on shares stay: what is counted after the timed steps is a step like the last of them."""
        self._began = 0.0
        self.weight = 1.0
        """What the loss of this step is multiplied with."""
        self._full = True
        """Whether the batch of this step is."""
        self._ahead = 0
        """Steps whose samples are chosen already when shares move."""

    # ---- what every task promises -----------------------------------------------------------------------------

    def infer(self, mark: Mark) -> Any:
        return self.task.infer(mark)

    def optimizer(self) -> Any:
        return self.task.optimizer()

    def loss(self, output: Any, target: Any) -> Any:
        """The loss of this rank's samples, weighted by their part of the batch."""
        return self.task.loss(output, target) * self.weight

    def batches(
        self, workers: int, pin: bool = False, prefetch: int | None = None
    ) -> Iterator[tuple[tuple[Any, ...], Any]]:
        """This rank's share of every batch. Between two of them all ranks may agree on other shares."""
        self.loads_ahead(workers)
        for inputs, target, samples, weight in self._shares(workers, pin):
            self.step_begins(samples, weight)
            yield inputs, target
            self.step_ended(samples)

    def loads_ahead(self, workers: int) -> None:
        """So many processes load batches whose shares cannot be changed any more."""
        self._ahead = PREFETCHED * workers + 1 if workers else 0

    def step_begins(self, samples: int, weight: float) -> None:
        """The next step has so many samples of this rank's, which are that part of the batch."""
        self.weight = (1.0 / self.group.size if self.equal_weights else weight) if self.weighted else 1.0
        self.log.samples.append(samples)
        self._full = round(samples / weight) == self.balance.batch

    # ---- one step after another -------------------------------------------------------------------------------

    def _shares(self, workers: int, pin: bool) -> Iterator[tuple[tuple[Any, ...], Any, int, float]]:
        """Inputs, target, samples, and this rank's part of the batch."""
        me, task = self.group.me, self.task
        dataset = getattr(task, "dataset", None)
        if dataset is None or getattr(task, "batch_size", None) is None:
            self.agree()
            for step, (inputs, target) in enumerate(task.batches(workers, pin)):
                shares = self.balance.shares_at(step)
                first = sum(shares[:me])
                inputs, target = cut((tuple(inputs), target), first, first + shares[me], self.balance.batch)
                yield inputs, target, shares[me], shares[me] / self.balance.batch
                self.agree()
            return
        from torch.utils.data import DataLoader

        sampler = SharedBatches(task.sampler, self.balance.batch, self.balance.shares_at, me)  # type: ignore[attr-defined]
        loader = DataLoader(dataset, batch_sampler=sampler, num_workers=workers, pin_memory=pin)
        self.agree()
        for inputs, target in loader:
            weight = sampler.weights.popleft()
            yield tuple(inputs), target, len(target), weight
            self.agree()

    def agree(self) -> None:
        """The next step begins: agree on its shares first."""
        if self.moving and self.balance.due(self.step) and (self.last is None or self.step < self.last):
            with self.waiting():
                rows = self.group.numbers([self.pace.factor, self.balance.measured(self.log.steps)])
            factors, measured = zip(*rows, strict=True)
            self.balance.update(self.step + self._ahead, factors, max(measured))
        self.group.meter.take()
        self._began = perf_counter()

    def step_ended(self, samples: int) -> None:
        """What follows every step: others may have to hear how long it took."""
        self.finished()
        self.after(self.step, samples)
        waited = self.group.meter.take()
        worked = perf_counter() - self._began - waited
        self.pace.took(worked, self.balance.lines[self.group.me].time(samples))
        self.log.worked.append(worked)
        self.log.waited.append(waited)
        self.log.steps.append(worked + waited if self._full else nan)
        self.step += 1


# ---- One rank of several that train through whole epochs, each with its share of every batch (ddp, hybrid, ----------


class SharedLearner:
    """A learner whose batches are shares of those of all ranks; together they see those of a single process.

    Evaluation is shared alike, or done by the first rank alone while the others wait.
    """

    def __init__(
        self,
        task: SharedTask,
        plain: Any,
        images: Images,
        workers: int,
        everybody: bool = True,
        average: Callable[[], None] = lambda: None,
    ) -> None:
        """`everybody` evaluates; `average` makes the weights of all ranks equal, where they are not always."""
        self.task, self.plain, self.images, self.workers = task, plain, images, workers
        self.everybody = everybody
        self.average = average
        self.criterion = task.task.loss
        self.group: Group = task.group

    @property
    def dtype(self) -> Any:
        return next(self.plain.parameters()).dtype

    def steps(self, part: str) -> int:
        if part == "train":
            # A last batch without a sample for everybody is left out.
            least = max(2, self.group.size)
            return len(cut_training_batches(self.images.order(0), self.task.balance.batch, least))
        return len(self._evaluated(part))

    def batches(self, part: str, epoch: int) -> Generator[Batch]:
        if part != "train":
            for inputs, labels in self.images.batches(self._evaluated(part), self.dtype):
                yield Batch(inputs, self.images.target(labels, self.dtype), labels, len(labels), len(labels))
            return
        task, first = self.task, self.task.step
        steps = self.steps("train")
        sampler = SharedBatches(
            self.images.order(epoch)[: steps * task.balance.batch].tolist(),
            task.balance.batch,
            lambda step: task.balance.shares_at(first + step),
            self.group.me,
        )
        task.loads_ahead(self.workers)
        task.agree()
        for inputs, labels in self.images.batches(sampler, self.dtype):
            samples = len(labels)
            part_of_batch = sampler.weights.popleft()
            task.step_begins(samples, part_of_batch)
            # A weighted loss is this rank's part of the mean over the whole batch.
            weight = samples / task.weight
            yield Batch(inputs, self.images.target(labels, self.dtype), labels, weight, samples)
            task.step_ended(samples)
            if task.step < first + steps:
                task.agree()
        self.average()

    def _evaluated(self, part: str) -> list[list[int]]:
        """This rank's batches of a share, no larger than its share of a training batch."""
        numbers = self.images.numbers(part)
        shares = self.task.balance.shares
        me, size = self.group.me, self.group.size
        if not self.everybody or len(numbers) < size:
            return cut_batches(numbers, self.task.balance.batch) if me == 0 else []
        own = scaled_shares(shares, len(numbers))
        begin = sum(own[:me])
        return cut_batches(numbers[begin : begin + own[me]], max(1, shares[me]))

    def judge(self, output: Any, batch: Batch) -> tuple[Any, Any]:
        loss = self.criterion(output, batch.target).double() * len(batch.labels)
        return loss, (output.argmax(1) == batch.labels).sum()

    def together(self, numbers: list[float]) -> list[float]:
        rows = self.group.numbers(numbers)
        return [sum(column) for column in zip(*rows, strict=True)]

    def gather(self) -> None:
        """Weights are equal already; statistics of local batch norms are those of the first rank, as in PyTorch."""


class SharedLoaders(SharedLearner):
    """The same with batches that somebody's own loaders give: every rank walks through all, and takes its samples.

    Of validation and test each takes whole batches.
    """

    def __init__(
        self,
        task: SharedTask,
        plain: Any,
        loaders: Loaders,
        criteria: Criteria,
        everybody: bool = True,
        average: Callable[[], None] = lambda: None,
    ) -> None:
        self.task, self.plain, self.loaders, self.criteria = task, plain, loaders, criteria
        self.everybody, self.average = everybody, average
        self.group: Group = task.group

    def steps(self, part: str) -> int:
        return self.loaders.steps(part) if part == "train" else len(self._mine(part))

    def batches(self, part: str, epoch: int) -> Generator[Batch]:
        if part != "train":
            mine = self._mine(part)
            for number, loaded in enumerate(self.loaders.walk(part, epoch)):
                if number in mine:
                    yield self._batch(loaded.inputs, loaded.target, loaded.samples, loaded.samples)
            return
        task, me, first = self.task, self.group.me, self.task.step
        steps = self.steps("train")
        task.loads_ahead(0)
        task.agree()
        for loaded in self.loaders.walk("train", epoch):
            whole = loaded.samples
            if whole < self.group.size:
                raise SondaError(
                    f"a batch of {whole} cannot be shared by {self.group.size} ranks",
                    "let the loader leave out a last batch that is not full: drop_last=True",
                )
            shares = task.balance.shares_at(task.step)
            shares = shares if whole == task.balance.batch else scaled_shares(shares, whole)
            begin = sum(shares[:me])
            inputs, target = cut((loaded.inputs, loaded.target), begin, begin + shares[me], whole)
            task.step_begins(shares[me], shares[me] / whole)
            # A weighted loss is this rank's part of the mean over the whole batch.
            yield self._batch(inputs, target, shares[me] / task.weight, shares[me])
            task.step_ended(shares[me])
            if task.step < first + steps:
                task.agree()
        self.average()

    def _batch(self, inputs: Any, target: Any, weight: float, samples: int) -> Batch:
        target = self.criteria.adapt(target)
        return Batch(self.criteria.adapt(inputs), target, target, weight, samples)

    def _mine(self, part: str) -> range:
        """Numbers of this rank's batches of validation or test."""
        count, me, size = self.loaders.steps(part), self.group.me, self.group.size
        if not self.everybody or count < size:
            return range(count if me == 0 else 0)
        own = scaled_shares(self.task.balance.shares, count)
        begin = sum(own[:me])
        return range(begin, begin + own[me])

    def judge(self, output: Any, batch: Batch) -> tuple[Any, Any]:
        return self.criteria.judge(output, batch.target, batch.counted)
