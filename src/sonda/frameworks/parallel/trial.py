"""A trial: the task with batches of any size up to its own, for timing steps before the real ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sonda.frameworks.parallel.batches import cut
from sonda.record.protocols import Mark, Task


class TrialTask:
    """Hands out the first `size` samples of one batch, again and again."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.model = task.model
        self.inputs = task.inputs
        self.samples, self.tokens, self.phase_tokens = task.samples, task.tokens, task.phase_tokens
        self.size = task.samples

    def infer(self, mark: Mark) -> Any:
        return self.task.infer(mark)

    def loss(self, output: Any, target: Any) -> Any:
        return self.task.loss(output, target)

    def optimizer(self) -> Any:
        return self.task.optimizer()

    def batches(
        self, workers: int, pin: bool = False, prefetch: int | None = None
    ) -> Iterator[tuple[tuple[Any, ...], Any]]:
        whole = next(self.task.batches(0))
        while True:
            inputs, target = cut(whole, 0, self.size, self.samples)
            yield tuple(inputs), target
