"""A pipeline: every rank has a stage of the model, and parts of the batch walk through the stages.

All parts go forward, then all go backward (GPipe; Huang et al., 2019). Sending and receiving are operations of
autograd: what is received in forward sends its gradient back in backward, so that the loop around is the usual one.
Batch norms see one part at a time, as in gradient accumulation.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from sonda.frameworks.harness.batches import Images, cut_batches, cut_training_batches
from sonda.frameworks.torch.drive.epochs import Batch
from sonda.frameworks.torch.parallel.batches import cut
from sonda.frameworks.torch.parallel.chain import Link
from sonda.frameworks.torch.parallel.gradients import spread
from sonda.frameworks.torch.parallel.group import Group, Waiting, unseen
from sonda.record.protocols import Mark, Task


class Neighbours:
    """What a stage sends to and receives from the one before and the one after it."""

    def __init__(self, group: Group, parts: int) -> None:
        self.group = group
        self.parts = parts
        self.waiting: Waiting = nullcontext
        """Entered while this stage does nothing but wait until what it has sent was taken."""
        self._sent: list[tuple[Any, Tensor]] = []
        """What is on its way, with the memory that it is sent from."""

    def send(self, values: Tensor, place: int, tag: int) -> None:
        """Send to a stage, without waiting until it is received."""
        import torch.distributed as dist

        values = values.detach().contiguous()
        with unseen():
            if self._by_host(values):
                values = values.cpu()
            self._sent.append((dist.isend(values, self.group.ranks[place], self.group.gradients, tag), values))

    def receive(self, like: Tensor, place: int, tag: int) -> Tensor:
        """Wait for what a stage sends; `like` has its shape and type."""
        import torch.distributed as dist

        values = torch.empty_like(like, device="cpu" if self._by_host(like) else like.device)
        with unseen(), self.group.meter.measured():
            dist.recv(values, self.group.ranks[place], self.group.gradients, tag)
            return values.to(like.device)

    def _by_host(self, values: Tensor) -> bool:
        """Whether values must pass through the host's memory: gloo sends from nowhere else."""
        import torch.distributed as dist

        return values.is_cuda and dist.get_backend(self.group.gradients) != "nccl"

    def settle(self) -> None:
        """Wait until everything that was sent has been taken."""
        sent, self._sent = self._sent, []
        with self.waiting(), self.group.meter.measured():
            for work, _ in sent:
                work.wait()


class _Send(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, token: Tensor, values: Tensor, neighbours: Neighbours, part: int) -> Tensor:
        """`token` needs a gradient, so that backward comes here also where nothing before it learns."""
        me = neighbours.group.me
        neighbours.send(values, me + 1, part)
        context.neighbours, context.part = neighbours, part
        context.save_for_backward(values)
        return torch.zeros_like(token)

    @staticmethod
    def backward(context: Any, *_gradients: Any) -> tuple[Any, ...]:
        (values,) = context.saved_tensors
        neighbours: Neighbours = context.neighbours
        if not values.is_floating_point():  # the next stage has no gradient of them
            return None, None, None, None
        place = neighbours.group.me + 1
        return None, neighbours.receive(values, place, neighbours.parts + context.part), None, None


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

    def __init__(self, links: Sequence[Link], neighbours: Neighbours, full: int, received: Tensor | None) -> None:
        """`full` is the size of a whole batch; `received`, None for the first stage, is like what the one before
        sends, whatever the number of its rows."""
        super().__init__()
        for path, module in links:
            self.add_module(path.replace(".", "-"), module)
        self.links = [module for _, module in links]
        self.neighbours = neighbours
        self.full = full
        self.like = received
        self.first = neighbours.group.me == 0
        self.last = neighbours.group.me == neighbours.group.size - 1

    def forward(self, *inputs: Tensor) -> list[Tensor]:
        """Of a stage that is not the first, only the number of rows of its input counts."""
        outputs = []
        for part, values in enumerate(split(inputs[0], parts_of(len(inputs[0]), self.full, self.neighbours.parts))):
            token = torch.zeros((), device=inputs[0].device, requires_grad=True)
            if self.like is not None:
                like = self.like.new_empty((len(values), *self.like.shape[1:]))
                values = _Receive.apply(token, like, self.neighbours, part)
            for module in self.links:
                values = module(values)
            outputs.append(values if self.last else _Send.apply(token, values, self.neighbours, part))
        return outputs


def parts_of(samples: int, full: int, parts: int) -> int:
    """Into how many parts a batch is cut: a shorter one into fewer, of about the size that those of a full one have."""
    return parts if samples >= full else -(-samples // -(-full // parts))


def split(values: Tensor, parts: int) -> list[Tensor]:
    """So many parts of a batch, the larger ones first; sizes differ by one at most."""
    return list(torch.tensor_split(values, parts))


class StageScaler(torch.amp.GradScaler):
    """Scales the loss of all stages alike: they leave out a step together, where the gradients of one are too large."""

    def __init__(self, device: str, group: Group) -> None:
        super().__init__(device)
        self.kind, self.group = device, group

    def unscale_(self, optimizer: Any) -> None:
        super().unscale_(optimizer)
        found = self._per_optimizer_states[id(optimizer)]["found_inf_per_device"]
        if not found:  # nothing learns in this stage
            found[torch.device(self.kind)] = torch.zeros(1, device=self.kind)
        for one in found.values():
            self.group.sum(one)


class StageTask:
    """A task as one stage sees it; with several pipelines side by side, the stage of one of them."""

    def __init__(
        self, task: Task, stage: Stage, model: Any = None, shares: Sequence[int] = (), replica: int = 0
    ) -> None:
        """`model` is the stage, or the stage made ready to sum its gradients with those of other pipelines; `shares`
        are the samples of each pipeline, of which this one is the `replica`."""
        self.task = task
        self.stage = stage
        self.model: Any = model if model is not None else stage
        self.shares, self.replica = tuple(shares) or (task.samples,), replica
        self.weight = self.shares[replica] / sum(self.shares)
        """This pipeline's part of the batch."""
        self.inputs = task.inputs
        self.samples, self.tokens, self.phase_tokens = task.samples, task.tokens, task.phase_tokens

    def infer(self, mark: Mark) -> Any:
        return self.task.infer(mark)

    def optimizer(self) -> Any:
        """Over the whole model: what is not in this stage has no gradients and stays."""
        return self.task.optimizer()

    def scaler(self, device: str) -> StageScaler:
        """For gradients in float16."""
        return StageScaler(device, self.stage.neighbours.group)

    def loss(self, outputs: list[Tensor], target: Tensor) -> Tensor:
        """On the last stage this pipeline's part of the mean over the batch; on the others a zero that leads back to
        what was sent."""
        if not self.stage.last:
            return torch.stack(outputs).sum()
        targets = split(target, len(outputs))
        weighted = [
            self.task.loss(output, wanted) * (self.weight * len(wanted) / len(target))
            for output, wanted in zip(outputs, targets, strict=True)
        ]
        return torch.stack(weighted).sum()

    def batches(
        self, workers: int, pin: bool = False, prefetch: int | None = None
    ) -> Iterator[tuple[tuple[Any, ...], Any]]:
        """Whole batches of this pipeline, the same on every rank of it: the first stage needs the inputs, the last the
        targets."""
        begin = sum(self.shares[: self.replica])
        for batch in self.task.batches(workers, pin, prefetch):
            yield cut(batch, begin, begin + self.shares[self.replica], sum(self.shares))
            self.stage.neighbours.settle()


# ---- One rank of a pipeline, or of several side by side, that trains its stage of the model through whole -----------


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
            whole = cut_training_batches(self.images.order(epoch), self.batch, 2 * self.replicas)
        else:
            whole = cut_batches(self.images.numbers(part), self.batch)
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
