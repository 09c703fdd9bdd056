"""Two processes that train together over gloo. Argument: a directory for what they print."""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from digest import report
from torch import nn


def work(rank, meeting):
    os.environ.update(RANK=str(rank), WORLD_SIZE="2")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{meeting}", rank=rank, world_size=2)
    torch.manual_seed(rank)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(4):
        loss = model(torch.randn(3, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with open(f"{sys.argv[1]}/rank{rank}.txt", "w") as file:
        sys.stdout = file
        report(losses, model)
        sys.stdout = sys.__stdout__
    dist.barrier()  # one that leaves earlier can take the other's connection with it
    dist.destroy_process_group()


if __name__ == "__main__":
    # A file that only these two know: a free port may be taken by somebody else before they use it.
    meeting = os.path.abspath(f"{sys.argv[1]}/meeting-{os.getpid()}")
    torch.multiprocessing.start_processes(work, (meeting,), nprocs=2, start_method="spawn")
    for rank in range(2):
        print(Path(sys.argv[1], f"rank{rank}.txt").read_text(), end="")
