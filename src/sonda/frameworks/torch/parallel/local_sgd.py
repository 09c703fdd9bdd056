"""Local SGD: every rank trains on its own, and weights are averaged now and then instead of gradients every step.

With an average after every step of plain SGD it is the same as exchanging weighted gradients. (Stich, Local SGD
converges fast and communicates little, 2019.)
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from sonda.frameworks.torch.parallel.gradients import Waiting
from sonda.frameworks.torch.parallel.group import Group


def average(model: Any, group: Group, weight: float) -> None:
    """Replace weights and statistics by their mean over ranks, weighted; the weights of all ranks sum to 1."""
    if group.size == 1:
        return
    import torch

    tensors = [one for one in (*model.parameters(), *model.buffers()) if one.is_floating_point() or one.is_complex()]
    with torch.no_grad():
        for dtype in sorted({tensor.dtype for tensor in tensors}, key=str):
            own = [tensor for tensor in tensors if tensor.dtype == dtype]
            flat = torch.cat([tensor.detach().reshape(-1) for tensor in own]).mul_(weight)
            group.sum_large(flat)
            for tensor, mean in zip(own, flat.split([tensor.numel() for tensor in own]), strict=True):
                tensor.copy_(mean.view_as(tensor))


class Averaging:
    """Told of every step: averages after each `every` of them, by the samples that each rank has seen since."""

    def __init__(self, model: Any, group: Group, every: int, waiting: Waiting = nullcontext) -> None:
        self.model = model
        self.group = group
        self.every = every
        self.waiting = waiting
        self._samples = self._steps = 0

    def step_ended(self, step: int, samples: int) -> None:
        """One more step is done. They are counted from the last average on, so that a training which goes on from a
        checkpoint averages after the same steps."""
        self._samples += samples
        self._steps += 1
        if self._steps == self.every:
            self.average_now()

    def average_now(self) -> None:
        """Average what was learnt since the last time, if anything was; all ranks call this together."""
        with self.waiting():
            seen = [row[0] for row in self.group.numbers([float(self._samples)])]
            if sum(seen):
                average(self.model, self.group, self._samples / sum(seen))
        self._samples = self._steps = 0
