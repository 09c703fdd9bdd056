"""A pipeline: every rank has a stage of the model, and microbatches walk through the stages.

All parts of a batch go forward, then all go backward (GPipe; Huang et al., 2019). Sending and receiving are autograd
functions: what is received in forward sends its gradient back in backward. So the usual training loop drives a stage.
Batch norms see one part at a time, as in gradient accumulation.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from sonda.frameworks.harness.batches import Images, cut_batches, cut_training_batches
from sonda.frameworks.torch.drive.epochs import StepBatch
from sonda.frameworks.torch.parallel.batches import cut_batch
from sonda.frameworks.torch.parallel.chain import Link
from sonda.frameworks.torch.parallel.gradients import broadcast_tensors
from sonda.frameworks.torch.parallel.group import Communicator, Waiting, hide_from_counter
from sonda.record.protocols import Mark, Task


class Neighbours:
    """Sends to and receives from the stages before and after this one."""

    def __init__(self, group: Communicator, parts: int) -> None:
        self.group = group
        self.parts = parts
        self.waiting: Waiting = nullcontext
        """Makes the context that this stage enters while it waits for its sends to be received."""
        self._sent: list[tuple[Any, Tensor]] = []
        """Sends that have not ended, with the tensors that they are sent from."""

    def send(self, values: Tensor, place: int, tag: int) -> None:
        """Send values to the stage at position `place`, without waiting until they are received."""
        import torch.distributed as dist

        values = values.detach().contiguous()
        with hide_from_counter():
            if self._must_pass_host(values):
                values = values.cpu()
            self._sent.append((dist.isend(values, self.group.ranks[place], self.group.gradients, tag), values))

    def receive(self, like: Tensor, place: int, tag: int) -> Tensor:
        """Wait for values from the stage at position `place`; `like` has their shape and type."""
        import torch.distributed as dist

        values = torch.empty_like(like, device="cpu" if self._must_pass_host(like) else like.device)
        with hide_from_counter(), self.group.meter.measure():
            dist.recv(values, self.group.ranks[place], self.group.gradients, tag)
            return values.to(like.device)

    def _must_pass_host(self, values: Tensor) -> bool:
        """Whether values must pass through the host's memory: gloo sends from there only."""
        import torch.distributed as dist

        return values.is_cuda and dist.get_backend(self.group.gradients) != "nccl"

    def wait_for_sends(self) -> None:
        """Wait until everything that was sent has been received."""
        sent, self._sent = self._sent, []
        with self.waiting(), self.group.meter.measure():
            for work, _ in sent:
                work.wait()


class _Send(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, token: Tensor, values: Tensor, neighbours: Neighbours, part: int) -> Tensor:
        """`token` requires a gradient, so that backward reaches this node even where no weight before it is trained."""
        me = neighbours.group.me
        neighbours.send(values, me + 1, part)
        context.neighbours, context.part = neighbours, part
        context.save_for_backward(values)
        return torch.zeros_like(token)

    @staticmethod
    def backward(context: Any, *_gradients: Any) -> tuple[Any, ...]:
        (values,) = context.saved_tensors
        neighbours: Neighbours = context.neighbours
        if not values.is_floating_point():  # the next stage computes no gradient for them
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
    """Some modules of the chain. Returns one output per part; a stage that is not the last returns zeros from which
    backward begins."""

    def __init__(self, links: Sequence[Link], neighbours: Neighbours, full: int, received: Tensor | None) -> None:
        """`full` is the size of a whole batch. `received` is an example of what the stage before sends, with any number
        of rows; None for the first stage."""
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
        """The outputs of all parts. A stage that is not the first uses only the number of rows of its input."""
        outputs = []
        for part, values in enumerate(
            split_rows(inputs[0], count_parts(len(inputs[0]), self.full, self.neighbours.parts))
        ):
            token = torch.zeros((), device=inputs[0].device, requires_grad=True)
            if self.like is not None:
                like = self.like.new_empty((len(values), *self.like.shape[1:]))
                values = _Receive.apply(token, like, self.neighbours, part)
            for module in self.links:
                values = module(values)
            outputs.append(values if self.last else _Send.apply(token, values, self.neighbours, part))
        return outputs


def count_parts(samples: int, full: int, parts: int) -> int:
    """The number of parts of a batch. A batch that is not full has fewer parts of about the same size."""
    return parts if samples >= full else -(-samples // -(-full // parts))


def split_rows(values: Tensor, parts: int) -> list[Tensor]:
    """A batch in so many parts by rows, the larger ones first; their sizes differ by at most one."""
    return list(torch.tensor_split(values, parts))


class StageScaler(torch.amp.GradScaler):
    """A gradient scaler whose stages skip a step together, where the gradients of any of them are too large."""

    def __init__(self, device: str, group: Communicator) -> None:
        super().__init__(device)
        self.kind, self.group = device, group

    def unscale_(self, optimizer: Any) -> None:
        super().unscale_(optimizer)
        infinities = self._per_optimizer_states[id(optimizer)]["found_inf_per_device"]
        if not infinities:  # this stage has no trained weights
            infinities[torch.device(self.kind)] = torch.zeros(1, device=self.kind)
        for count in infinities.values():
            self.group.sum(count)


class StageTask:
    """A task as one stage sees it, of a single pipeline or of one of several side by side."""

    def __init__(
        self, task: Task, stage: Stage, model: Any = None, shares: Sequence[int] = (), replica: int = 0
    ) -> None:
        """`model` is the stage, or its wrapper that sums gradients with those of other pipelines. `shares` are the
        samples of each pipeline; `replica` is the number of this one."""
        self.task = task
        self.stage = stage
        self.model: Any = model if model is not None else stage
        self.shares, self.replica = tuple(shares) or (task.samples,), replica
        self.weight = self.shares[replica] / sum(self.shares)
        """This pipeline's fraction of the batch."""
        self.inputs = task.inputs
        self.samples, self.tokens, self.phase_tokens = task.samples, task.tokens, task.phase_tokens

    def infer(self, mark: Mark) -> Any:
        return self.task.infer(mark)

    def optimizer(self) -> Any:
        """An optimizer over the whole model. Weights outside of this stage get no gradients and stay as they are."""
        return self.task.optimizer()

    def scaler(self, device: str) -> StageScaler:
        """The gradient scaler for float16."""
        return StageScaler(device, self.stage.neighbours.group)

    def loss(self, outputs: list[Tensor], target: Tensor) -> Tensor:
        """The loss of this pipeline, as its part of the mean over the batch.

        On a stage that is not the last it is a zero whose backward leads to what was sent.
        """
        if not self.stage.last:
            return torch.stack(outputs).sum()
        targets = split_rows(target, len(outputs))
        weighted = [
            self.task.loss(output, part) * (self.weight * len(part) / len(target))
            for output, part in zip(outputs, targets, strict=True)
        ]
        return torch.stack(weighted).sum()

    def batches(
        self, workers: int, pin: bool = False, prefetch: int | None = None
    ) -> Iterator[tuple[tuple[Any, ...], Any]]:
        """The batches of this pipeline, the same on all its ranks: the first stage needs inputs, the last targets."""
        begin = sum(self.shares[: self.replica])
        for batch in self.task.batches(workers, pin, prefetch):
            yield cut_batch(batch, begin, begin + self.shares[self.replica], sum(self.shares))
            self.stage.neighbours.wait_for_sends()


# ---- A rank that trains its stage through whole epochs ---------------------------------------------------------------


class StagedLearner:
    """A learner that trains one stage. The first stage fetches inputs, the last one judges outputs."""

    def __init__(
        self,
        task: StageTask,
        images: Images,
        everybody: Communicator,
        peers: Communicator,
        stages: Sequence[Sequence[Any]],
    ) -> None:
        """`everybody` are all ranks. `peers` are the ranks with the same stage of other pipelines. `stages` are the
        tensors of each stage."""
        self.task, self.images, self.everybody, self.peers, self.stages = task, images, everybody, peers, stages
        self.plain: Any = task.task.model
        self.replicas = len(task.shares)
        self.batch = sum(task.shares)

    @property
    def dtype(self) -> Any:
        return next(self.plain.parameters()).dtype

    def _chosen(self, part: str, epoch: int) -> list[tuple[list[int], int]]:
        """This pipeline's samples of each batch, with the size of the batch. Batches without samples are left out."""
        if part == "train":  # at least two samples for every pipeline
            whole = cut_training_batches(self.images.order(epoch), self.batch, 2 * self.replicas)
        else:
            whole = cut_batches(self.images.numbers(part), self.batch)
        me, count = self.task.replica, self.replicas
        own = [(batch[me * len(batch) // count : (me + 1) * len(batch) // count], len(batch)) for batch in whole]
        return [(numbers, size) for numbers, size in own if numbers]

    def steps(self, part: str) -> int:
        return len(self._chosen(part, 0))

    def batches(self, part: str, epoch: int) -> Generator[StepBatch]:
        task, chosen = self.task, self._chosen(part, epoch)
        own = [numbers for numbers, _ in chosen]
        batches = self.images.batches(own, self.dtype) if task.stage.first else self._batches_without_images(own)
        for (inputs, labels), (_, size) in zip(batches, chosen, strict=True):
            task.weight = len(labels) / size
            count = len(labels) if task.stage.last else 0
            try:
                yield StepBatch(inputs, self.images.target(labels, self.dtype), labels, size, count)
            finally:  # also where the caller stops here
                task.stage.neighbours.wait_for_sends()
        if part == "train" and self.peers.size > 1:
            # Batch norms have seen only their own pipeline's samples; the first pipeline's statistics count.
            broadcast_tensors(task.stage.buffers(), self.peers, 0)

    def _batches_without_images(self, chosen: list[list[int]]) -> Iterator[tuple[tuple[Any, ...], Any]]:
        """Batches for stages after the first: inputs with rows but no values, and labels."""
        for numbers in chosen:
            labels = self.images.labels(numbers)
            yield (labels.new_empty((len(labels), 0)),), labels

    def judge(self, output: Any, batch: StepBatch) -> tuple[Any, Any]:
        if not self.task.stage.last:
            return 0.0, 0
        loss, right = 0.0, 0
        targets, labels = (split_rows(values, len(output)) for values in (batch.target, batch.labels))
        for answer, target, classes in zip(output, targets, labels, strict=True):
            loss = loss + self.task.task.loss(answer, target).double() * len(classes)
            right = right + (answer.argmax(1) == classes).sum()
        return loss, right

    def sum_over_ranks(self, numbers: list[float]) -> list[float]:
        rows = self.everybody.gather_numbers(numbers)
        return [sum(column) for column in zip(*rows, strict=True)]

    def gather_weights(self) -> None:
        """Copy every stage of the first pipeline to every rank."""
        for place, tensors in enumerate(self.stages):
            broadcast_tensors(tensors, self.everybody, place)
