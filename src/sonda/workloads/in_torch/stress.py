"""The stress kernels in PyTorch. Everything is allocated once: a step takes no memory from the system."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sonda.record.errors import SondaError
from sonda.record.protocols import Mark
from sonda.workloads.in_torch.task import seed_generators
from sonda.workloads.operations.stress import FLOAT, LINE, Stress, StressBandwidth, StressCache, StressCompute

SCALE = 3.0
"""Factor of STREAM's triad."""


class Lines(nn.Module):
    """Reads every line of a table once, in random order, and adds them up."""

    def __init__(self, lines: int, rounds: int, generator: torch.Generator) -> None:
        super().__init__()
        self.rounds = rounds
        self.register_buffer("table", torch.rand(lines, LINE // FLOAT, generator=generator))
        self.register_buffer("order", torch.randperm(lines, generator=generator).unsqueeze(0))

    def forward(self) -> Tensor:
        result = self.table[:1]
        for _ in range(self.rounds):
            result = F.embedding_bag(self.order, self.table, mode="sum")
        return result


class Triad(nn.Module):
    def __init__(self, elements: int, rounds: int, generator: torch.Generator) -> None:
        super().__init__()
        self.rounds = rounds
        for name in ("b", "c"):
            self.register_buffer(name, torch.rand(elements, generator=generator))
        self.register_buffer("a", torch.zeros(elements))

    def forward(self) -> Tensor:
        for _ in range(self.rounds):
            torch.add(self.b, self.c, alpha=SCALE, out=self.a)
        return self.a


class Products(nn.Module):
    def __init__(self, side: int, rounds: int, generator: torch.Generator) -> None:
        super().__init__()
        self.rounds = rounds
        for name in ("a", "b"):
            self.register_buffer(name, torch.rand(side, side, generator=generator))
        self.register_buffer("c", torch.zeros(side, side))

    def forward(self) -> Tensor:
        for _ in range(self.rounds):
            torch.mm(self.a, self.b, out=self.c)
        return self.c


class StressTask:
    """A task without data and without training."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.samples = 1
        self.tokens = 0
        self.phase_tokens: dict[str, int] = {}
        self.inputs: tuple[Any, ...] = ()

    def infer(self, mark: Mark) -> Tensor:
        with torch.no_grad():
            return self.model()

    def batches(
        self, workers: int, pin: bool = False, prefetch: int | None = None
    ) -> Iterator[tuple[tuple[Any, ...], Any]]:
        raise SondaError("a stress kernel has no batches", "leave out --train")

    def loss(self, output: Any, target: Any) -> Any:
        raise SondaError("a stress kernel has no loss", "leave out --train")

    def optimizer(self) -> Any:
        raise SondaError("a stress kernel has nothing to learn", "leave out --train")


def build(description: Stress, seed: int) -> StressTask:
    generator = seed_generators(seed)
    if isinstance(description, StressCache):
        return StressTask(Lines(description.lines, description.rounds, generator))
    if isinstance(description, StressBandwidth):
        return StressTask(Triad(description.elements, description.rounds, generator))
    if isinstance(description, StressCompute):
        return StressTask(Products(description.side, description.rounds, generator))
    raise SondaError(f"{description.name} is not built in torch", "use a newer Sonda")
