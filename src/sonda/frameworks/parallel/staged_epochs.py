"""One rank of a pipeline, or of several side by side, that trains its stage of the model through whole epochs."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any

from sonda.frameworks.learner import Images, learnt, pieces
from sonda.frameworks.parallel.gradients import spread
from sonda.frameworks.parallel.group import Group
from sonda.frameworks.parallel.pipeline import StageTask, split
from sonda.frameworks.torch_epochs import Batch


class StagedLearner:
    """A learner that holds a stage. Inputs are fetched by the first stage, answers judged by the last."""

    def __init__(
        self, task: StageTask, images: Images, everybody: Group, peers: Group, stages: Sequence[Sequence[Any]]
    ) -> None:
        """`everybody` are all ranks, `peers` those that hold the same stage of other pipelines; `stages` are the
        tensors of each stage, of which this rank trains one."""
        self.task, self.images, self.everybody, self.peers, self.stages = task, images, everybody, peers, stages
        self.plain: Any = task.task.model
        self.replicas = len(task.shares)
        self.batch = sum(task.shares)

    @property
    def dtype(self) -> Any:
        return next(self.plain.parameters()).dtype

    def _chosen(self, part: str, epoch: int) -> list[tuple[list[int], int]]:
        """This pipeline's samples of each batch, and how many the batch has; in evaluation it may have none of one."""
        if part == "train":  # two samples for every pipeline at least
            whole = learnt(self.images.order(epoch), self.batch, 2 * self.replicas)
        else:
            whole = pieces(self.images.numbers(part), self.batch)
        me, count = self.task.replica, self.replicas
        own = [(one[me * len(one) // count : (me + 1) * len(one) // count], len(one)) for one in whole]
        return [(numbers, size) for numbers, size in own if numbers]

    def steps(self, part: str) -> int:
        return len(self._chosen(part, 0))

    def batches(self, part: str, epoch: int) -> Generator[Batch]:
        task, chosen = self.task, self._chosen(part, epoch)
        own = [numbers for numbers, _ in chosen]
        found = self.images.batches(own, self.dtype) if task.stage.first else self._without(own)
        for (inputs, labels), (_, size) in zip(found, chosen, strict=True):
            task.weight = len(labels) / size
            count = len(labels) if task.stage.last else 0
            try:
                yield Batch(inputs, self.images.target(labels, self.dtype), labels, size, count)
            finally:  # also where this was the last one asked for
                task.stage.neighbours.settle()
        if part == "train" and self.peers.size > 1:
            # Batch norms have seen their own pipeline's samples only; the first one's statistics count.
            spread(task.stage.buffers(), self.peers, 0)

    def _without(self, chosen: list[list[int]]) -> Iterator[tuple[tuple[Any, ...], Any]]:
        """Batches as stages see them that are given no images: rows without values, and classes."""
        for numbers in chosen:
            labels = self.images.labels(numbers)
            yield (labels.new_empty((len(labels), 0)),), labels

    def judge(self, output: Any, batch: Batch) -> tuple[Any, Any]:
        if not self.task.stage.last:
            return 0.0, 0
        loss, right = 0.0, 0
        targets, labels = (split(values, len(output)) for values in (batch.target, batch.labels))
        for answer, target, kinds in zip(output, targets, labels, strict=True):
            loss = loss + self.task.task.loss(answer, target).double() * len(kinds)
            right = right + (answer.argmax(1) == kinds).sum()
        return loss, right

    def together(self, numbers: list[float]) -> list[float]:
        rows = self.everybody.numbers(numbers)
        return [sum(column) for column in zip(*rows, strict=True)]

    def gather(self) -> None:
        """Every rank gets every stage, from the first pipeline."""
        for place, tensors in enumerate(self.stages):
            spread(tensors, self.everybody, place)
