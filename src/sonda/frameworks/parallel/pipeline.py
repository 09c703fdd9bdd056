"""A pipeline: every rank has a stage of the model, and parts of the batch walk through the stages.

All parts go forward, then all go backward (GPipe; Huang et al., 2019). Sending and receiving are operations of
autograd: what is received in forward sends its gradient back in backward, so that the loop around is the usual one.
Batch norms see one part at a time, as in gradient accumulation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from sonda.frameworks.parallel.chain import Link
from sonda.frameworks.parallel.group import Group, unseen
from sonda.record.protocols import Mark, Task


class Neighbours:
    """What a stage sends to and receives from the one before and the one after it."""

    def __init__(self, group: Group, parts: int) -> None:
        self.group = group
        self.parts = parts
        self._sent: list[tuple[Any, Tensor]] = []
        """What is on its way, with the memory that it is sent from."""

    def send(self, values: Tensor, place: int, tag: int) -> None:
        """Send to a stage, without waiting until it is received."""
        import torch.distributed as dist

        values = values.detach().contiguous()
        with unseen():
            self._sent.append((dist.isend(values, self.group.ranks[place], self.group.gradients, tag), values))

    def receive(self, like: Tensor, place: int, tag: int) -> Tensor:
        """Wait for what a stage sends; `like` has its shape and type."""
        import torch.distributed as dist

        values = torch.empty_like(like)
        with unseen(), self.group.meter.measured():
            dist.recv(values, self.group.ranks[place], self.group.gradients, tag)
        return values

    def settle(self) -> None:
        """Wait until everything that was sent has been taken."""
        sent, self._sent = self._sent, []
        with self.group.meter.measured():
            for work, _ in sent:
                work.wait()


class _Send(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, values: Tensor, neighbours: Neighbours, part: int) -> Tensor:
        me = neighbours.group.me
        neighbours.send(values, me + 1, part)
        context.neighbours, context.part = neighbours, part
        context.save_for_backward(values)
        return values.new_zeros(())

    @staticmethod
    def backward(context: Any, *_gradients: Any) -> tuple[Any, ...]:
        (values,) = context.saved_tensors
        neighbours: Neighbours = context.neighbours
        place = neighbours.group.me + 1
        return neighbours.receive(values, place, neighbours.parts + context.part), None, None


class _Receive(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, _token: Tensor, like: Tensor, neighbours: Neighbours, part: int) -> Tensor:
        context.neighbours, context.part = neighbours, part
        return neighbours.receive(like, neighbours.group.me - 1, part)

    @staticmethod
    def backward(context: Any, *gradients: Any) -> tuple[Any, ...]:
        neighbours: Neighbours = context.neighbours
        neighbours.send(gradients[0], neighbours.group.me - 1, neighbours.parts + context.part)
        return None, None, None, None


class Stage(nn.Module):
    """Some modules of the chain. Gives one output per part; a stage that is not the last gives zeros to begin backward
    from."""

    def __init__(self, links: Sequence[Link], neighbours: Neighbours, received: Sequence[Tensor]) -> None:
        """`received[part]` is shaped like what the stage before sends; empty for the first."""
        super().__init__()
        for path, module in links:
            self.add_module(path.replace(".", "-"), module)
        self.links = [module for _, module in links]
        self.neighbours = neighbours
        self.received = list(received)
        self.first = neighbours.group.me == 0
        self.last = neighbours.group.me == neighbours.group.size - 1

    def forward(self, *inputs: Tensor) -> list[Tensor]:
        count = self.neighbours.parts
        given = split(inputs[0], count) if self.first else self.received
        outputs = []
        for part, values in enumerate(given):
            if not self.first:
                token = torch.zeros((), device=values.device, requires_grad=True)
                values = _Receive.apply(token, values, self.neighbours, part)
            for module in self.links:
                values = module(values)
            outputs.append(values if self.last else _Send.apply(values, self.neighbours, part))
        return outputs


def split(values: Tensor, parts: int) -> list[Tensor]:
    """So many parts of a batch, the larger ones first; sizes differ by one at most."""
    return list(torch.tensor_split(values, parts))


class StageTask:
    """A task as one stage sees it."""

    def __init__(self, task: Task, stage: Stage) -> None:
        self.task = task
        self.model: Any = stage
        self.stage = stage
        self.inputs = task.inputs
        self.samples, self.tokens, self.phase_tokens = task.samples, task.tokens, task.phase_tokens

    def infer(self, mark: Mark) -> Any:
        return self.task.infer(mark)

    def optimizer(self) -> Any:
        """Over the whole model: what is not in this stage has no gradients and stays."""
        return self.task.optimizer()

    def loss(self, outputs: list[Tensor], target: Tensor) -> Tensor:
        """The mean over the batch on the last stage; on the others a zero that leads back to what was sent."""
        if not self.stage.last:
            return torch.stack(outputs).sum()
        targets = split(target, len(outputs))
        weighted = [
            self.task.loss(output, wanted) * (len(wanted) / len(target))
            for output, wanted in zip(outputs, targets, strict=True)
        ]
        return torch.stack(weighted).sum()

    def batches(self, workers: int, pin: bool = False) -> Iterator[tuple[tuple[Any, ...], Any]]:
        """Whole batches, the same on every rank: the first stage needs the inputs, the last the targets."""
        for batch in self.task.batches(workers, pin):
            yield batch
            self.stage.neighbours.settle()
