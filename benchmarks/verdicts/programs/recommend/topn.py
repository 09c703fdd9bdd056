"""Top-N recommendation: a linear item-to-item model trained with weighted squares."""

import math

import torch
from torch import nn


class ItemModel(nn.Module):
    def __init__(self, items, rank):
        super().__init__()
        self.down = nn.Linear(items, rank, bias=False)
        self.up = nn.Linear(rank, items, bias=False)

    def forward(self, x):
        return self.up(self.down(x))


def interactions(users, items, per_user):
    taste = torch.rand(12, items) ** 6
    group = torch.randint(12, (users,))
    x = torch.zeros(users, items)
    x.scatter_(1, torch.multinomial(taste[group] + 1e-4, per_user), 1.0)
    return x


def ndcg(scores, truth, k):
    order = scores.argsort(dim=1, descending=True)
    ranked = truth.gather(1, order)[:, :k]
    discount = 1 / torch.log2(torch.arange(k) + 2.0)
    best = [sum(1 / math.log2(i + 2) for i in range(min(k, int(row.sum())))) for row in truth]
    return ((ranked * discount).sum(1) / torch.tensor(best).clamp(min=1e-6)).mean().item()


torch.manual_seed(15)
users, items = 5120, 1500
x = interactions(users, items, per_user=30)
kept = x * (torch.rand_like(x) < 0.7)
model = ItemModel(items, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=20.0, momentum=0.9)
for epoch in range(3):
    curve = []
    for rows in torch.randperm(users).split(256):
        scores = model(kept[rows])
        weight = 1 + 9 * x[rows]
        loss = (weight * (scores - x[rows]) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            held_out = x[rows] - kept[rows]
            curve.append([ndcg(scores - 100 * kept[rows], held_out, k) for k in (5, 10, 50, 100)])
    print(f"epoch {epoch}: loss {loss.item():.4f}, ndcg@10 {sum(c[1] for c in curve) / len(curve):.4f}")
