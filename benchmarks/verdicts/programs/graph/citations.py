"""Mini-batches of sampled neighbourhoods, streamed by the workers of a data loader."""

import random

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, IterableDataset


class Neighbourhoods(IterableDataset):
    """Streams batches: seeds, two hops of sampled neighbours, their features and the labels of the seeds."""

    def __init__(self, nodes=20000, degree=24, features=32, classes=8, batches=160, batch_size=256, fanout=(10, 8)):
        rng = np.random.default_rng(1)
        self.label = rng.integers(0, classes, nodes)
        self.edges = rng.integers(0, nodes, (nodes, degree))
        self.x = (rng.standard_normal((classes, features))[self.label] + rng.standard_normal((nodes, features))).astype(
            np.float32
        )
        self.batches, self.batch_size, self.fanout = batches, batch_size, fanout

    def expand(self, nodes, count):
        picked = []
        for node in nodes:
            candidates = sorted(set(self.edges[node].tolist()) - {int(node)})
            picked.append(random.choices(candidates, k=count))
        return np.array(picked)

    def __iter__(self):
        random.seed(1)
        rng = np.random.default_rng(2)
        for _ in range(self.batches):
            seeds = rng.integers(0, len(self.label), self.batch_size)
            hop1 = self.expand(seeds, self.fanout[0])
            hop2 = self.expand(hop1.ravel(), self.fanout[1])
            x0, x1, x2 = self.x[seeds], self.x[hop1], self.x[hop2].reshape(*hop1.shape, self.fanout[1], -1)
            yield tuple(torch.from_numpy(a) for a in (x0, x1, x2.mean(axis=2), self.label[seeds]))


class TwoHop(nn.Module):
    def __init__(self, features=32, width=128, classes=8):
        super().__init__()
        self.inner = nn.Linear(2 * features, width)
        self.outer = nn.Linear(features + width, width)
        self.head = nn.Linear(width, classes)

    def forward(self, x0, x1, x2):
        h1 = F.relu(self.inner(torch.cat([x1, x2], dim=-1))).mean(dim=1)
        return self.head(F.relu(self.outer(torch.cat([x0, h1], dim=-1))))


def main():
    torch.manual_seed(0)
    loader = DataLoader(Neighbourhoods(), batch_size=None, num_workers=1, prefetch_factor=4)
    model = TwoHop()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step, (x0, x1, x2, label) in enumerate(loader):
        loss = F.cross_entropy(model(x0, x1, x2), label)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 40 == 39:
            print(f"step {step + 1}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
