"""A task as one rank of several sees it, with its share of every batch and its part of the loss.

It is a `Task` like any other, so the same loop drives it that drives a single device.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from math import nan
from time import perf_counter
from typing import Any

from sonda.frameworks.harness.batches import Criteria, Images, Loaders, cut_batches, cut_training_batches
from sonda.frameworks.torch.drive.epochs import StepBatch
from sonda.frameworks.torch.parallel.balance import Balance, Pace
from sonda.frameworks.torch.parallel.batches import PREFETCHED, ShareSampler, cut_batch, scaled_shares
from sonda.frameworks.torch.parallel.gradients import Waiting
from sonda.frameworks.torch.parallel.group import Communicator
from sonda.record.errors import SondaError
from sonda.record.protocols import Mark, Task


@dataclass
class StepLog:
    """A rank's log with one entry per step: samples, time of work, time of waiting for others. Times are in s."""

    samples: list[int] = field(default_factory=list)
    worked: list[float] = field(default_factory=list)
    waited: list[float] = field(default_factory=list)
    steps: list[float] = field(default_factory=list)
    """Time of the whole step; NaN where the batch was not full, because such a step cannot be compared with others."""


class SharedTask:
    """One rank's view of a task. All ranks do every step, and agree on shares at the same steps."""

    def __init__(
        self,
        task: Task,
        model: Any,
        group: Communicator,
        balance: Balance,
        moving: bool = True,
        weighted: bool = True,
        after: Callable[[int, int], None] = lambda step, samples: None,
        finished: Callable[[], None] = lambda: None,
        waiting: Waiting = nullcontext,
    ) -> None:
        """`model` is the task's model, made ready for several ranks. `moving`: shares follow the ranks' speed.

        `weighted`: losses are weighted, because gradients are summed. `after(step, samples)` is called after every
        step. `finished()` waits for the device. `waiting()` makes the context entered while ranks agree on shares.
        """
        self.task = task
        self.model = model
        self.group = group
        self.balance = balance
        self.moving = moving
        self.weighted = weighted
        self.equal_weights = False
        """Whether every rank has the same weight, however few its samples: a wrong average, for comparison."""
        self.after = after
        self.finished = finished
        self.waiting = waiting
        self.inputs = task.inputs
        self.samples = balance.batch
        self.tokens = task.tokens
        self.phase_tokens = task.phase_tokens
        self.log = StepLog()
        self.pace = Pace()
        self.step = 0
        """Number of steps done."""
        self.last: int | None = None
        """The step from which on shares stay, so that the counted step after the timed ones has the shares of the last;
        None: they may always move."""
        self._began = 0.0
        self.weight = 1.0
        """Factor of the loss in this step."""
        self._full = True
        """Whether the batch of this step is full."""
        self._ahead = 0
        """Number of following steps whose samples are already chosen when shares move."""

    # ---- what every task promises -----------------------------------------------------------------------------

    def infer(self, mark: Mark) -> Any:
        return self.task.infer(mark)

    def optimizer(self) -> Any:
        return self.task.optimizer()

    def loss(self, output: Any, target: Any) -> Any:
        """The loss of this rank's samples, weighted by their fraction of the batch."""
        return self.task.loss(output, target) * self.weight

    def batches(
        self, workers: int, pin: bool = False, prefetch: int | None = None
    ) -> Iterator[tuple[tuple[Any, ...], Any]]:
        """This rank's share of every batch. Between two batches ranks may agree on new shares."""
        self.set_load_ahead(workers)
        for inputs, target, samples, weight in self._shares(workers, pin):
            self.begin_step(samples, weight)
            yield inputs, target
            self.end_step(samples)

    def set_load_ahead(self, workers: int) -> None:
        """Note how many batches the worker processes load ahead: new shares cannot apply to those."""
        self._ahead = PREFETCHED * workers + 1 if workers else 0

    def begin_step(self, samples: int, weight: float) -> None:
        """Begin a step with so many samples of this rank; `weight` is their fraction of the batch."""
        self.weight = (1.0 / self.group.size if self.equal_weights else weight) if self.weighted else 1.0
        self.log.samples.append(samples)
        self._full = round(samples / weight) == self.balance.batch

    # ---- one step after another -------------------------------------------------------------------------------

    def _shares(self, workers: int, pin: bool) -> Iterator[tuple[tuple[Any, ...], Any, int, float]]:
        """Yields inputs, target, number of samples, and this rank's fraction of each batch."""
        me, task = self.group.me, self.task
        dataset = getattr(task, "dataset", None)
        if dataset is None or getattr(task, "batch_size", None) is None:
            self.agree_on_shares()
            for step, (inputs, target) in enumerate(task.batches(workers, pin)):
                shares = self.balance.shares_at(step)
                first = sum(shares[:me])
                inputs, target = cut_batch((tuple(inputs), target), first, first + shares[me], self.balance.batch)
                yield inputs, target, shares[me], shares[me] / self.balance.batch
                self.agree_on_shares()
            return
        from torch.utils.data import DataLoader

        sampler = ShareSampler(task.sampler, self.balance.batch, self.balance.shares_at, me)  # type: ignore[attr-defined]
        loader = DataLoader(dataset, batch_sampler=sampler, num_workers=workers, pin_memory=pin)
        self.agree_on_shares()
        for inputs, target in loader:
            weight = sampler.weights.popleft()
            yield tuple(inputs), target, len(target), weight
            self.agree_on_shares()

    def agree_on_shares(self) -> None:
        """Agree with the other ranks on the shares of the next step, where that is due, and start its clock."""
        if self.moving and self.balance.is_due(self.step) and (self.last is None or self.step < self.last):
            with self.waiting():
                rows = self.group.gather_numbers([self.pace.factor, self.balance.measured_step(self.log.steps)])
            factors, measured = zip(*rows, strict=True)
            self.balance.update(self.step + self._ahead, factors, max(measured))
        self.group.meter.take()
        self._began = perf_counter()

    def end_step(self, samples: int) -> None:
        """End a step of so many samples: wait for the device, and log how long it worked and waited."""
        self.finished()
        self.after(self.step, samples)
        waited = self.group.meter.take()
        worked = perf_counter() - self._began - waited
        self.pace.record_step(worked, self.balance.lines[self.group.me].time(samples))
        self.log.worked.append(worked)
        self.log.waited.append(waited)
        self.log.steps.append(worked + waited if self._full else nan)
        self.step += 1


# ---- A rank that trains on its share of every batch through whole epochs (ddp, hybrid, localsgd) ---------------------


class RankLearner:
    """A learner on its share of every batch; together the ranks see the batches of a single process.

    Evaluation is shared too, or done by the first rank alone while the others wait.
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
        """`everybody`: all ranks evaluate, not only the first. `average` makes the weights of all ranks equal at the
        end of an epoch, where they may differ."""
        self.task, self.plain, self.images, self.workers = task, plain, images, workers
        self.everybody = everybody
        self.average = average
        self.criterion = task.task.loss
        self.group: Communicator = task.group

    @property
    def dtype(self) -> Any:
        return next(self.plain.parameters()).dtype

    def steps(self, part: str) -> int:
        if part == "train":
            # A last batch with fewer samples than ranks is left out.
            least = max(2, self.group.size)
            return len(cut_training_batches(self.images.order(0), self.task.balance.batch, least))
        return len(self._evaluation_batches(part))

    def batches(self, part: str, epoch: int) -> Generator[StepBatch]:
        if part != "train":
            for inputs, labels in self.images.batches(self._evaluation_batches(part), self.dtype):
                yield StepBatch(inputs, self.images.target(labels, self.dtype), labels, len(labels), len(labels))
            return
        task, first = self.task, self.task.step
        steps = self.steps("train")
        sampler = ShareSampler(
            self.images.order(epoch)[: steps * task.balance.batch].tolist(),
            task.balance.batch,
            lambda step: task.balance.shares_at(first + step),
            self.group.me,
        )
        task.set_load_ahead(self.workers)
        task.agree_on_shares()
        for inputs, labels in self.images.batches(sampler, self.dtype):
            samples = len(labels)
            task.begin_step(samples, sampler.weights.popleft())
            # A weighted loss is this rank's part of the mean over the whole batch.
            weight = samples / task.weight
            yield StepBatch(inputs, self.images.target(labels, self.dtype), labels, weight, samples)
            task.end_step(samples)
            if task.step < first + steps:
                task.agree_on_shares()
        self.average()

    def _evaluation_batches(self, part: str) -> list[list[int]]:
        """This rank's evaluation batches, none larger than its share of a training batch."""
        numbers = self.images.numbers(part)
        shares = self.task.balance.shares
        me, size = self.group.me, self.group.size
        if not self.everybody or len(numbers) < size:
            return cut_batches(numbers, self.task.balance.batch) if me == 0 else []
        own = scaled_shares(shares, len(numbers))
        begin = sum(own[:me])
        return cut_batches(numbers[begin : begin + own[me]], max(1, shares[me]))

    def judge(self, output: Any, batch: StepBatch) -> tuple[Any, Any]:
        loss = self.criterion(output, batch.target).double() * len(batch.labels)
        return loss, (output.argmax(1) == batch.labels).sum()

    def sum_over_ranks(self, numbers: list[float]) -> list[float]:
        rows = self.group.gather_numbers(numbers)
        return [sum(column) for column in zip(*rows, strict=True)]

    def gather_weights(self) -> None:
        """Does nothing: weights are equal, and a checkpoint takes the first rank's statistics of local batch norms."""


class RankLoaderLearner(RankLearner):
    """The same on the user's own loaders: every rank walks through all batches and takes its samples of each.

    In validation and test every rank takes whole batches.
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
        self.group: Communicator = task.group

    def steps(self, part: str) -> int:
        return self.loaders.steps(part) if part == "train" else len(self._evaluation_positions(part))

    def batches(self, part: str, epoch: int) -> Generator[StepBatch]:
        if part != "train":
            positions = self._evaluation_positions(part)
            for number, loaded in enumerate(self.loaders.walk(part, epoch)):
                if number in positions:
                    yield self._adapt_batch(loaded.inputs, loaded.target, loaded.samples, loaded.samples)
            return
        task, me, first = self.task, self.group.me, self.task.step
        steps = self.steps("train")
        task.set_load_ahead(0)
        task.agree_on_shares()
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
            inputs, target = cut_batch((loaded.inputs, loaded.target), begin, begin + shares[me], whole)
            task.begin_step(shares[me], shares[me] / whole)
            # A weighted loss is this rank's part of the mean over the whole batch.
            yield self._adapt_batch(inputs, target, shares[me] / task.weight, shares[me])
            task.end_step(shares[me])
            if task.step < first + steps:
                task.agree_on_shares()
        self.average()

    def _adapt_batch(self, inputs: Any, target: Any, weight: float, samples: int) -> StepBatch:
        target = self.criteria.adapt(target)
        return StepBatch(self.criteria.adapt(inputs), target, target, weight, samples)

    def _evaluation_positions(self, part: str) -> range:
        """The positions of this rank's batches of validation or test."""
        count, me, size = self.loaders.steps(part), self.group.me, self.group.size
        if not self.everybody or count < size:
            return range(count if me == 0 else 0)
        own = scaled_shares(self.task.balance.shares, count)
        begin = sum(own[:me])
        return range(begin, begin + own[me])

    def judge(self, output: Any, batch: StepBatch) -> tuple[Any, Any]:
        return self.criteria.judge(output, batch.target, batch.counted)
