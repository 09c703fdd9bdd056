"""Single operations in PyTorch, each a module that holds its operands."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sonda.record.protocols import Mark
from sonda.workloads.in_torch.task import make_sgd
from sonda.workloads.operations.operands import draw_values, new_generator
from sonda.workloads.operations.ops import SCALAR

if TYPE_CHECKING:
    from sonda.workloads.operations.ops import Operations


class OperationModule(nn.Module):
    """An operation on its own operands. They are parameters, so that training computes their gradients."""

    def __init__(self, operands: list[Tensor]) -> None:
        super().__init__()
        self.operands = nn.ParameterList(operands)


class Add(OperationModule):
    def forward(self) -> Tensor:
        a, b = self.operands
        return a + b


class Dot(OperationModule):
    def forward(self) -> Tensor:
        a, b = self.operands
        return a @ b


class Mul(OperationModule):
    def forward(self) -> Tensor:
        a, b = self.operands
        return a * b


class Scalar(OperationModule):
    def forward(self) -> Tensor:
        (a,) = self.operands
        return SCALAR * a


class Sigmoid(OperationModule):
    def forward(self) -> Tensor:
        (a,) = self.operands
        return torch.sigmoid(a)


class Tanh(OperationModule):
    def forward(self) -> Tensor:
        (a,) = self.operands
        return torch.tanh(a)


class Convolution(OperationModule):
    def forward(self) -> Tensor:
        maps, kernel = self.operands
        return F.conv2d(maps, kernel, padding=kernel.shape[-1] // 2)


class Pooling(OperationModule):
    def forward(self) -> Tensor:
        (maps,) = self.operands
        return F.max_pool2d(maps, 2)


class BatchNorm(OperationModule):
    """Normalises by the batch's own statistics in training, by running ones in inference."""

    def __init__(self, operands: list[Tensor]) -> None:
        super().__init__(operands)
        channels = operands[1].shape
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("variance", torch.ones(channels))

    def forward(self) -> Tensor:
        maps, scale, shift = self.operands
        return F.batch_norm(maps, self.mean, self.variance, scale, shift, training=self.training)


class LayerNorm(OperationModule):
    def forward(self) -> Tensor:
        a, scale, shift = self.operands
        return F.layer_norm(a, a.shape[-1:], scale, shift)


class Softmax(OperationModule):
    def forward(self) -> Tensor:
        (a,) = self.operands
        return torch.softmax(a, dim=-1)


class Attention(OperationModule):
    def forward(self) -> Tensor:
        queries, keys, values = self.operands
        return F.scaled_dot_product_attention(queries, keys, values)


class EmbeddingBag(OperationModule):
    def __init__(self, operands: list[Tensor], indices: Tensor) -> None:
        super().__init__(operands)
        self.register_buffer("indices", indices)

    def forward(self) -> Tensor:
        (table,) = self.operands
        return F.embedding_bag(self.indices, table, mode="sum", sparse=True)


MODULES = {
    "add": Add,
    "dot": Dot,
    "mul": Mul,
    "scalar": Scalar,
    "sigmoid": Sigmoid,
    "tanh": Tanh,
    "convolution": Convolution,
    "pooling": Pooling,
    "batch_norm": BatchNorm,
    "layer_norm": LayerNorm,
    "softmax": Softmax,
    "attention": Attention,
}


class OperationList(nn.Module):
    """Runs its operations one after the other, each on its own operands."""

    def __init__(self, description: Operations, seed: int) -> None:
        super().__init__()
        drawn = new_generator(seed)
        for op in description.op:
            operands = [torch.from_numpy(draw_values(shape, drawn)) for shape in description.operands(op)]
            if op == "embedding_bag":
                shape = (description.bags, description.indices)
                module = EmbeddingBag(operands, torch.from_numpy(drawn.integers(len(operands[0]), size=shape)))
            else:
                module = MODULES[op](operands)
            self.add_module(op, module)

    def forward(self) -> tuple[Tensor, ...]:
        return tuple(operation() for operation in self.children())


class OperationsTask:
    """A task without data: operands are part of the model, so batches are empty."""

    def __init__(self, description: Operations, train: bool, seed: int) -> None:
        self.model = OperationList(description, seed).train(train)
        self.samples = 1  # `size` fixes the work of a step, whatever the batch
        self.tokens = 0
        self.phase_tokens: dict[str, int] = {}
        self.inputs: tuple[Any, ...] = ()
        self.optimizer = make_sgd(self.model, description.learning_rate)

    def infer(self, mark: Mark) -> tuple[Tensor, ...]:
        with torch.no_grad():
            return self.model()

    def batches(
        self, workers: int, pin: bool = False, prefetch: int | None = None
    ) -> Iterator[tuple[tuple[Any, ...], Any]]:
        yield from repeat(((), torch.zeros(())))

    def loss(self, output: tuple[Tensor, ...], target: Tensor) -> Tensor:
        """The sum of the means of all results."""
        return torch.stack([result.mean() for result in output]).sum()


def build(description: Operations, train: bool, seed: int) -> OperationsTask:
    return OperationsTask(description, train, seed)
