"""Click prediction from pairwise interactions of embedded fields."""

import torch
from torch import nn


class PairwiseNetwork(nn.Module):
    def __init__(self, fields=20, values=500, width=32):
        super().__init__()
        self.table = nn.Embedding(fields * values, width, sparse=True)
        self.register_buffer("offsets", torch.arange(fields) * values, persistent=False)
        left, right = torch.triu_indices(fields, fields, offset=1)
        self.register_buffer("left", left, persistent=False)
        self.register_buffer("right", right, persistent=False)
        self.scale = nn.Parameter(torch.ones(width))
        self.shift = nn.Parameter(torch.zeros(width))
        self.out = nn.Linear(width, 1)

    def activate(self, x):
        x = 0.5 * x * (1 + torch.tanh(0.79788456 * (x + 0.044715 * x * x * x)))
        centred = x - x.mean(-1, keepdim=True)
        spread = (centred * centred).mean(-1, keepdim=True)
        return centred / torch.sqrt(spread + 1e-5) * self.scale + self.shift

    def forward(self, codes):
        vectors = self.table(codes + self.offsets)
        pairs = vectors[:, self.left] * vectors[:, self.right]
        return self.out(self.activate(pairs).mean(1)).squeeze(1)


def impressions(steps, batch, fields=20, values=500):
    for _ in range(steps):
        codes = torch.randint(values, (batch, fields))
        yield codes, ((codes[:, 0] + codes[:, 1]) % 2).float()


def main():
    torch.manual_seed(3)
    model = PairwiseNetwork()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    criterion = nn.BCEWithLogitsLoss()
    for step, (codes, clicked) in enumerate(impressions(80, 256)):
        loss = criterion(model(codes), clicked)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 19:
            print(f"{step + 1:3d} {loss.item():.4f}")


if __name__ == "__main__":
    main()
