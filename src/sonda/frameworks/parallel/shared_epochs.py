"""One rank of several that train through whole epochs, each with its share of every batch (ddp, hybrid, localsgd)."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from sonda.frameworks.learner import Images, learnt, pieces
from sonda.frameworks.parallel.batches import SharedBatches, scaled_shares
from sonda.frameworks.parallel.group import Group
from sonda.frameworks.parallel.sharing import SharedTask
from sonda.frameworks.torch_epochs import Batch


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
            return len(learnt(self.images.order(0), self.task.balance.batch, least))
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
            return pieces(numbers, self.task.balance.batch) if me == 0 else []
        own = scaled_shares(shares, len(numbers))
        begin = sum(own[:me])
        return pieces(numbers[begin : begin + own[me]], max(1, shares[me]))

    def judge(self, output: Any, batch: Batch) -> tuple[Any, Any]:
        loss = self.criterion(output, batch.target).double() * len(batch.labels)
        return loss, (output.argmax(1) == batch.labels).sum()

    def together(self, numbers: list[float]) -> list[float]:
        rows = self.group.numbers(numbers)
        return [sum(column) for column in zip(*rows, strict=True)]

    def gather(self) -> None:
        """Weights are equal already; statistics of local batch norms are those of the first rank, as in PyTorch."""
