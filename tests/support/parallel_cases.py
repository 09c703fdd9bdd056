"""What ranks do in the tests of several devices; every function runs on all ranks at once."""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from sonda.frameworks.harness.settings import Driving
from sonda.frameworks.torch.drive.steps import TrainingLoop
from sonda.frameworks.torch.parallel.batches import cut_batch
from sonda.frameworks.torch.parallel.batchnorm import share_batch_norms
from sonda.frameworks.torch.parallel.gradients import distribute
from sonda.frameworks.torch.parallel.group import Communicator, make_group
from sonda.frameworks.torch.parallel.local_sgd import WeightAverager, average_weights
from sonda.frameworks.torch.parallel.pipeline import Neighbours, Stage, StageTask
from sonda.targets.ranks import rank as parallel_rank

BATCH, CLASSES = 16, 5


def network(kind: str = "norms") -> nn.Module:
    """A small network in double precision: with batch norms of every sort, or `plain`, without any, or `frozen`, which
    is the same with a first layer that does not learn."""
    torch.manual_seed(0)
    plain = kind != "norms"
    made = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=plain), nn.Identity() if plain else nn.BatchNorm2d(8), nn.ReLU(inplace=True),
        nn.Conv2d(8, 16, 3, 2), nn.Identity() if plain else nn.BatchNorm2d(16, affine=False), nn.ReLU(),
        nn.Flatten(), nn.Linear(16 * 9, 32), nn.Identity() if plain else nn.BatchNorm1d(32, momentum=None),
        nn.Linear(32, CLASSES),
    ).double()  # fmt: skip
    for module in made.modules():
        if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)) and module.affine:
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.bias, -1.0, 1.0)
    made[0].requires_grad_(kind != "frozen")
    return made


def data(steps: int) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(BATCH, 3, 8, 8, dtype=torch.float64, generator=generator),
         torch.randint(CLASSES, (BATCH,), generator=generator))
        for _ in range(steps)
    ]  # fmt: skip


def flat(tensors: Any) -> list[float]:
    return [value for tensor in tensors for value in tensor.detach().double().reshape(-1).tolist()]


def own_part(group: Communicator, shares: tuple[int, ...], inputs: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    first = sum(shares[: group.me])
    part = cut_batch((inputs, target), first, first + shares[group.me], BATCH)
    return part[0], part[1]


def train(group: Communicator, shares: tuple[int, ...], kind: str, steps: int, how: str) -> dict[str, Any]:
    """Gradients of the first step, weights and buffers after the last.

    `how`: exact, memory (exact, through shared memory), unweighted, local norms.
    """
    model = network(kind)
    if how == "memory":
        group.use_shared_memory(model, dist.group.WORLD.get_group_store(), 60)  # type: ignore[union-attr]
    if how != "local norms":
        share_batch_norms(model, group)
    wrapped = distribute(model, group, "cpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = nn.CrossEntropyLoss()
    gradients: list[float] = []
    for inputs, target in data(steps):
        mine, wanted = own_part(group, shares, inputs, target)
        weight = 1 / group.size if how == "unweighted" else len(wanted) / BATCH
        optimizer.zero_grad()
        (loss(wrapped(mine), wanted) * weight).backward()
        gradients = gradients or flat(one.grad for one in model.parameters() if one.grad is not None)
        optimizer.step()
    model.eval()
    with torch.no_grad():
        evaluated = flat([model(data(1)[0][0])])
    return {
        "gradients": gradients,
        "weights": flat(model.parameters()),
        "buffers": flat(model.buffers()),
        "evaluated": evaluated,
        "waited": group.meter.seconds,
    }


def alone(kind: str, steps: int) -> dict[str, Any]:
    """The same in one process with PyTorch's own modules."""
    torch.set_num_threads(1)
    model = network(kind)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gradients: list[float] = []
    for inputs, target in data(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), target).backward()
        gradients = gradients or flat(one.grad for one in model.parameters() if one.grad is not None)
        optimizer.step()
    model.eval()
    with torch.no_grad():
        evaluated = flat([model(data(1)[0][0])])
    return {"gradients": gradients, "weights": flat(model.parameters()), "buffers": flat(model.buffers()),
            "evaluated": evaluated}  # fmt: skip


def local_sgd(group: Communicator, shares: tuple[int, ...], every: int, steps: int) -> list[float]:
    model = network("plain")
    averager = WeightAverager(model, group, every)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, (inputs, target) in enumerate(data(steps)):
        mine, wanted = own_part(group, shares, inputs, target)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(mine), wanted).backward()
        optimizer.step()
        averager.end_step(step, len(wanted))
    return flat(model.parameters())


def averaged(group: Communicator) -> list[float]:
    """A complex weight of 1 + 0i or 2 - 1i, averaged in the ratio of 3 to 1; its two parts."""
    model = nn.Module()
    model.weight = nn.Parameter(torch.tensor([complex(group.me + 1, -group.me)], dtype=torch.complex128))
    average_weights(model, group, (0.75, 0.25)[group.me])
    return [model.weight.real.item(), model.weight.imag.item()]


class _Fork(nn.Module):
    """Two ways side by side, whose gradients come in another order than the modules were made."""

    def __init__(self) -> None:
        super().__init__()
        self.short, self.first, self.second = (nn.Linear(32, 32) for _ in range(3))

    def forward(self, values: Tensor) -> Tensor:
        return torch.relu(self.second(torch.relu(self.first(values))) + self.short(values))


def in_order(group: Communicator) -> list[list[float]]:
    """Weights after six deterministic steps in float32: at a stretch, and with DDP made anew after three."""
    found = []
    for again in (-1, 3):
        torch.manual_seed(0)
        model = nn.Sequential(_Fork(), _Fork(), nn.Linear(32, CLASSES))
        generator = torch.Generator().manual_seed(group.me)
        wrapped = distribute(model, group, "cpu", deterministic=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
        for step in range(6):
            if step == again:
                wrapped = distribute(model, group, "cpu", deterministic=True)
            inputs = torch.randn(BATCH, 32, generator=generator)
            target = torch.randint(CLASSES, (BATCH,), generator=generator)
            optimizer.zero_grad()
            nn.functional.cross_entropy(wrapped(inputs), target).backward()
            optimizer.step()
        found.append(flat(model.parameters()))
    return found


def whole_rank(directory: str) -> int:
    """A rank as it is started for a run, its plan and job being in the directory."""
    sys.argv = ["rank", directory]
    return parallel_rank.main()


class _Given:
    """A task of a fixed model and fixed data."""

    def __init__(self, model: nn.Module, steps: int) -> None:
        self.model = model
        self.inputs: Any = ()
        self.samples, self.tokens, self.phase_tokens = BATCH, 0, {}
        self.steps = steps

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        return nn.functional.cross_entropy(output, target)

    def optimizer(self) -> Any:
        return torch.optim.SGD(self.model.parameters(), lr=0.1)

    def infer(self, mark: Any) -> Any:
        raise NotImplementedError

    def batches(self, workers: int, pin: bool = False, prefetch: int | None = None) -> Any:
        for inputs, target in data(self.steps):
            yield (inputs,), target


def pipeline(
    group: Communicator,
    bounds: tuple[int, ...],
    parts: int,
    steps: int,
    shares: tuple[int, ...] = (BATCH,),
    kind: str = "plain",
) -> dict[str, list[float]]:
    """Weights of this rank's stage after some steps, by the path of its modules; a pipeline for every share."""
    stages = len(bounds) - 1
    lines = [range(number * stages, (number + 1) * stages) for number in range(len(shares))]
    groups = [make_group(list(ranks), group.meter, 60) for ranks in (*lines, *zip(*lines, strict=True))]
    line, peers = (one for one in groups if one.me >= 0)
    model = network(kind)
    chain = list(model.named_children())
    begin, end = bounds[line.me], bounds[line.me + 1]
    with torch.no_grad():
        received = nn.Sequential(*(one for _, one in chain[:begin]))(data(1)[0][0][:1])
    own = shares[peers.me]
    stage = Stage(chain[begin:end], Neighbours(line, parts), own, received if begin else None)
    summed = distribute(stage, peers, "cpu") if peers.size > 1 else stage
    task = StageTask(_Given(model, steps), stage, summed, shares, peers.me)
    optimizer = task.optimizer()
    for inputs, target in task.batches(0):
        optimizer.zero_grad()
        task.loss(summed(*inputs), target).backward()
        optimizer.step()
    return {path: flat(module.parameters()) for path, module in chain[begin:end] if list(module.parameters())}


def scaled(group: Communicator | None = None) -> list[list[float]]:
    """After each of two steps with a loss that is scaled for gradients in float16: the scale, then the weights, of a
    stage or without a group of the whole. In the first step those of the first layer alone are too large."""
    torch.manual_seed(0)
    chain = [("0", nn.Linear(4, 4)), ("1", nn.Linear(4, 2))]
    nn.init.zeros_(chain[0][1].weight)
    model = nn.Sequential(*(one for _, one in chain))
    task: Any = _Given(model, 0)
    if group is not None:
        own = [chain[group.me]]
        stage = Stage(own, Neighbours(group, 2), 8, torch.zeros(1, 4, dtype=torch.float16) if group.me else None)
        task, model = StageTask(task, stage), nn.Sequential(own[0][1])
    loop = TrainingLoop(task, Driving(True, None, 0, 0.0, "mixed_float16"))
    found = []
    for size in (3e4, 1.0):
        loop.learn((torch.full((8, 4), size),), torch.tensor([0, 1] * 4))
        if group is not None:
            stage.neighbours.wait_for_sends()
        found.append([loop.scaler.get_scale(), *flat(model.parameters())])
    return found
