"""Node embeddings from random walks with negative sampling."""

import torch
import torch.nn.functional as F
from torch import nn

NODES, WIDTH, BATCH, NEGATIVES = 100_000, 48, 1024, 5


class SkipGram(nn.Module):
    def __init__(self):
        super().__init__()
        self.centre = nn.Embedding(NODES, WIDTH)
        self.context = nn.Embedding(NODES, WIDTH)
        nn.init.normal_(self.centre.weight, std=0.1)
        nn.init.zeros_(self.context.weight)

    def forward(self, centre, context, negative):
        c = self.centre(centre)
        near = (c * self.context(context)).sum(dim=-1)
        far = torch.einsum("bd,bnd->bn", c, self.context(negative))
        return -(F.logsigmoid(near) + F.logsigmoid(-far).sum(dim=1)).mean()


def pairs(neighbours, count):
    """Starts of short walks and where they end."""
    start = torch.randint(NODES, (count,))
    node = start
    for _ in range(2):
        node = neighbours[node, torch.randint(neighbours.shape[1], (count,))]
    return start, node


def main():
    torch.manual_seed(13)
    neighbours = (torch.arange(NODES)[:, None] + torch.randint(-50, 50, (NODES, 6))) % NODES
    model = SkipGram()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    total = 0.0
    for step in range(60):
        centre, context = pairs(neighbours, BATCH)
        loss = model(centre, context, torch.randint(NODES, (BATCH, NEGATIVES)))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        total += loss.detach()
        if step % 20 == 19:
            print(f"step {step + 1}: loss {total.item() / 20:.4f}")
            total = 0.0


if __name__ == "__main__":
    main()
