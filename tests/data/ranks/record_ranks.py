"""Records torch.profiler traces of ranks that train together on gloo, one of which has more to do.

python record_ranks.py DIRECTORY RANKS SLOW_RANK
"""

from __future__ import annotations

import gzip
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule

STEPS = 5


def train(rank: int, ranks: int, slow: int, directory: str) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29631")
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    network = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))
    model = nn.parallel.DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    path = Path(directory) / f"rank{rank}.json"
    when = schedule(wait=0, warmup=2, active=STEPS, repeat=1)
    with profile(
        activities=[ProfilerActivity.CPU], schedule=when, on_trace_ready=lambda one: one.export_chrome_trace(str(path))
    ) as profiler:
        for _ in range(2 + STEPS):
            inputs = torch.randn(32, 64)
            if rank == slow:
                weights = torch.randn(512, 512)
                for _ in range(12):
                    weights = torch.tanh(weights @ weights)
            loss = model(inputs).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            dist.all_reduce(loss.detach())
            profiler.step()
    with gzip.open(path.with_suffix(".json.gz"), "wb") as file:
        file.write(path.read_bytes())
    path.unlink()
    dist.destroy_process_group()


if __name__ == "__main__":
    place, ranks, slow = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    Path(place).mkdir(parents=True, exist_ok=True)
    torch.multiprocessing.spawn(train, (ranks, slow, place), ranks)
