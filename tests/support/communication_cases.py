"""Programs of several ranks as anybody writes them, observed; every function runs on all ranks at once."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from time import sleep
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from sonda.frameworks.collector.recorder import Recorder
from sonda.frameworks.collector.sampling.schedule import Schedule
from sonda.frameworks.torch.observe.observer import TorchObserver

STEPS, LATE_S = 5, 0.2
"""So late that what a busy machine adds to a wait is little beside it."""


@contextmanager
def observed(directory: str) -> Any:
    recorder = Recorder(directory)
    recorder.state(rank=dist.get_rank())
    observer = TorchObserver(recorder, torch, Schedule(count=False))
    observer.install()
    try:
        yield observer
    finally:
        observer.remove()
        recorder.close()


def _model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))


def wrapped(_group: Any, directory: str, watched: bool) -> dict[str, Any]:
    """DistributedDataParallel; the second rank comes late to every backward. Weights, and what DDP's own stopwatch says
    of every step but the last: ns from the last gradient of this rank to the last of all."""
    model = nn.parallel.DistributedDataParallel(_model())
    model._set_ddp_runtime_logging_sample_rate(1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    exposed = []
    inputs = torch.full((8, 16), float(dist.get_rank() + 1))
    place = Path(directory) / ("watched" if watched else "plain")
    place.mkdir(exist_ok=True)

    def step(sync: bool = True) -> None:
        optimizer.zero_grad()
        loss = model(inputs).square().mean()
        said = model._get_ddp_logging_data()
        if "backward_comm_time" in said:  # of the step before
            exposed.append(said["backward_comm_time"] - said["backward_compute_comm_overlap_time"])
        if dist.get_rank():
            sleep(LATE_S)
        loss.backward()
        if sync:
            optimizer.step()

    def train() -> None:
        for _ in range(STEPS):
            step()
        with model.no_sync():
            step(sync=False)

    if watched:
        with observed(str(place)):
            train()
    else:
        train()
    weights = [value for tensor in model.parameters() for value in tensor.detach().reshape(-1).tolist()]
    return {"weights": weights, "exposed": exposed}


class Summed(nn.Module):
    """A layer that sums its output over ranks, as tensor parallelism does."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        total = values.detach().clone()
        dist.all_reduce(total)
        work = dist.all_reduce(total, async_op=True)
        work.wait()
        return values + 0 * total


def by_hand(_group: Any, directory: str) -> list[str]:
    """Gradients summed by the program's own calls, a layer that exchanges, and a barrier at the end."""
    model = nn.Sequential(_model(), Summed())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with observed(directory):
        for _ in range(STEPS):
            optimizer.zero_grad()
            model(torch.ones(8, 16)).square().mean().backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
            optimizer.step()
        dist.barrier()
        during = dist.all_reduce
    return [str(getattr(one, "__wrapped__", "")) for one in (dist.all_reduce, during)]
