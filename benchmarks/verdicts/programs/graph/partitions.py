"""Two ranks train one graph model, each on the parts of the graph that it owns."""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WORLD = 2


class GCN(nn.Module):
    def __init__(self, features=64, width=128, classes=10):
        super().__init__()
        self.first = nn.Linear(features, width)
        self.second = nn.Linear(width, width)
        self.head = nn.Linear(width, classes)

    def forward(self, x, source, target):
        for layer in (self.first, self.second):
            h = layer(x)
            x = F.relu(h + torch.zeros_like(h).index_add(0, target, h[source]) / 8)
        return self.head(x)


def communities(seed=0):
    """Communities of very different sizes, as (features, sources, targets, labels)."""
    generator = torch.Generator().manual_seed(seed)
    parts = []
    for nodes in (2400, 1800, 1200, 900, 500, 400, 300, 250, 200, 150):
        x = torch.randn(nodes, 64, generator=generator)
        source, target = torch.randint(nodes, (2, 8 * nodes), generator=generator)
        parts.append((x, source, target, (x[:, :10]).argmax(dim=1)))
    return parts


def assign(parts):
    """Which parts each rank owns."""
    half = len(parts) // WORLD
    return [parts[:half], parts[half:]]


def work(rank, store, steps):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=WORLD)
    owned = assign(communities())[rank]
    model = DistributedDataParallel(GCN())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(steps):
        with model.no_sync():
            for x, source, target, label in owned[:-1]:
                F.cross_entropy(model(x, source, target), label).backward()
        x, source, target, label = owned[-1]
        loss = F.cross_entropy(model(x, source, target), label)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if rank == 0 and step % 10 == 9:
            print(f"step {step + 1}: loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(work, args=(os.path.join(folder, "store"), 40), nprocs=WORLD)
