"""A workload built in PyTorch: model, synthetic examples, loss, optimizer."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Sampler

from sonda.record.protocols import Mark
from sonda.workloads.networks.examples import draw_positions

CORES = "SONDA_CORES"
"""Environment variable: the processors of a bound workload, separated by commas."""


class Examples(Dataset):
    """A data set in memory: row i of every input, and row i of the targets, are example i."""

    def __init__(self, inputs: tuple[Tensor, ...], targets: Tensor) -> None:
        self.inputs = inputs
        self.targets = targets

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[tuple[Tensor, ...], Tensor]:
        return tuple(values[index] for values in self.inputs), self.targets[index]

    def first(self, count: int) -> tuple[Tensor, ...]:
        """The inputs of the first examples, as one batch."""
        return tuple(values[:count] for values in self.inputs)


class EndlessSampler(Sampler):
    """Positions 0 to length-1 again and again, in the same order as in all frameworks."""

    def __init__(self, length: int, seed: int, shuffled: bool = True) -> None:
        self.length = length
        self.seed = seed
        self.shuffled = shuffled

    def __iter__(self) -> Iterator[int]:
        return draw_positions(self.length, self.seed, self.shuffled)


class TorchTask:
    """The task of a workload in PyTorch; see `sonda.record.protocols.Task`."""

    def __init__(
        self,
        model: nn.Module,
        inputs: tuple[Any, ...],
        dataset: Dataset,
        sampler: Sampler,
        batch_size: int | None,
        loss: Callable[[Any, Any], Tensor],
        optimizer: Callable[[], torch.optim.Optimizer],
        samples: int,
        tokens: int = 0,
    ) -> None:
        """`inputs` are those of one inference step. `batch_size` is None where the dataset holds whole batches."""
        self.model = model
        self.inputs = inputs
        self.dataset = dataset
        self.sampler = sampler
        self.batch_size = batch_size
        self.loss = loss
        self.optimizer = optimizer
        self.samples = samples
        self.tokens = tokens
        self.phase_tokens: dict[str, int] = {}

    def infer(self, mark: Mark) -> Any:
        """One inference step. The call of the model is a forward as in any program and needs no mark."""
        # inference_mode would hide the parts of composite operations from observers.
        with torch.no_grad():
            return self.model(*self.inputs)

    def batches(
        self, workers: int, pin: bool = False, prefetch: int | None = None
    ) -> Iterator[tuple[tuple[Any, ...], Any]]:
        """Endless training batches. They depend on the seed, not on the number of workers."""
        loader = DataLoader(
            self.dataset,
            batch_size=self.batch_size,
            sampler=self.sampler,
            num_workers=workers,
            prefetch_factor=-(-prefetch // workers) if prefetch and workers else None,
            pin_memory=pin,
            worker_init_fn=use_all_cores if workers else None,
            generator=torch.Generator().manual_seed(0),
        )
        for inputs, target in loader:
            yield tuple(inputs), target


def use_all_cores(_worker: int) -> None:
    """Let a loader's process use all cores of a bound workload, not only that of the thread that started it."""
    cores = os.environ.get(CORES, "")
    if cores:
        os.sched_setaffinity(0, [int(core) for core in cores.split(",")])


TaskKind = TypeVar("TaskKind", bound=TorchTask)


def make_examples_task(
    kind: type[TaskKind],
    model: nn.Module,
    examples: Examples,
    batch: int,
    train: bool,
    seed: int,
    loss: Callable[[Any, Any], Tensor],
    optimizer: Callable[[], torch.optim.Optimizer],
    tokens: int = 0,
) -> TaskKind:
    """The usual task: batches gathered example by example from a data set in memory."""
    return kind(
        model.train(train),
        examples.first(batch),
        examples,
        EndlessSampler(len(examples), seed),
        batch,
        loss,
        optimizer,
        samples=batch,
        tokens=tokens,
    )


def seed_generators(seed: int) -> torch.Generator:
    """Seed PyTorch's generator, for the weights. Returns a separate generator for the data."""
    torch.manual_seed(seed)
    # With the same seed the data would be the same numbers as the first weights.
    return torch.Generator().manual_seed(seed + 1)


def make_sgd(model: nn.Module, rate: float) -> Callable[[], torch.optim.Optimizer]:
    """A function that makes a plain SGD optimizer over the model's parameters."""
    return lambda: torch.optim.SGD(model.parameters(), lr=rate)
