"""Local SGD: every rank trains on its own, and ranks average their weights every few steps.

An average after every step of plain SGD gives the same weights as exchanging weighted gradients. (Stich, Local SGD
converges fast and communicates little, 2019.)
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from sonda.frameworks.torch.parallel.gradients import Waiting
from sonda.frameworks.torch.parallel.group import Communicator


def average_weights(model: Any, group: Communicator, weight: float) -> None:
    """Replace a model's parameters and statistics by their weighted mean over ranks.

    `weight` is this rank's share of the mean; the shares of all ranks sum to 1.
    """
    if group.size == 1:
        return
    import torch

    state = (*model.parameters(), *model.buffers())
    tensors = [tensor for tensor in state if tensor.is_floating_point() or tensor.is_complex()]
    with torch.no_grad():
        for dtype in sorted({tensor.dtype for tensor in tensors}, key=str):
            own = [tensor for tensor in tensors if tensor.dtype == dtype]
            flat = torch.cat([tensor.detach().reshape(-1) for tensor in own]).mul_(weight)
            group.sum_large(flat)
            for tensor, mean in zip(own, flat.split([tensor.numel() for tensor in own]), strict=True):
                tensor.copy_(mean.view_as(tensor))


class WeightAverager:
    """Averages the weights after every `interval` steps. A rank's share is that of the samples it has seen since."""

    def __init__(self, model: Any, group: Communicator, interval: int, waiting: Waiting = nullcontext) -> None:
        self.model = model
        self.group = group
        self.interval = interval
        self.waiting = waiting
        self._samples = self._steps = 0

    def end_step(self, step: int, samples: int) -> None:
        """Count a step of so many samples, and average when it is due.

        Steps are counted from the last average on, so that a training that continues from a checkpoint averages after
        the same steps.
        """
        self._samples += samples
        self._steps += 1
        if self._steps == self.interval:
            self.average_now()

    def average_now(self) -> None:
        """Average the weights if any rank has trained since the last average. All ranks must call this together."""
        with self.waiting():
            samples = [row[0] for row in self.group.gather_numbers([float(self._samples)])]
            if sum(samples):
                average_weights(self.model, self.group, self._samples / sum(samples))
        self._samples = self._steps = 0
