"""Two-tower retrieval with a memory of recent items as extra negatives."""

import torch
from torch import nn
from torch.nn import functional as F

WIDTH = 64
REMEMBERED = 120_000


class Tower(nn.Module):
    def __init__(self, inputs):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(inputs, 128), nn.ReLU(), nn.Linear(128, WIDTH))

    def forward(self, x):
        return F.normalize(self.layers(x), dim=-1)


class Memory:
    """The latest item vectors, newest first."""

    def __init__(self, size):
        self.vectors = F.normalize(torch.randn(size, WIDTH), dim=-1)
        self.size = size

    def add(self, fresh):
        self.vectors = torch.cat([fresh.detach(), self.vectors])[: self.size].clone()

    def draw(self, count):
        return self.vectors[torch.randint(self.size, (count,))]


class TwoTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = Tower(96)
        self.item = Tower(80)
        self.memory = Memory(REMEMBERED)

    def loss(self, queries, items):
        q, i = self.query(queries), self.item(items)
        candidates = torch.cat([i, self.memory.draw(512)])
        scores = q @ candidates.T / 0.07
        self.memory.add(i)
        return F.cross_entropy(scores, torch.arange(len(q)))


def stream(steps, batch):
    mixing = torch.randn(96, 80) / 10
    for _ in range(steps):
        queries = torch.randn(batch, 96)
        yield queries, queries @ mixing + 0.1 * torch.randn(batch, 80)


torch.manual_seed(12)
model = TwoTower()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step, (queries, items) in enumerate(stream(180, 256), start=1):
    loss = model.loss(queries, items)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 60 == 0:
        print(f"step {step}: loss {loss.item():.3f}")
