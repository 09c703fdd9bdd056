"""Household survey: sequential attention over columns (after TabNet), with a compiled decision step."""

import logging

import torch
from torch import nn

log = logging.getLogger("survey")


class DecisionStep(nn.Module):
    def __init__(self, columns, width):
        super().__init__()
        self.attention = nn.Linear(width, columns)
        self.mix = nn.Linear(columns, width)
        self.gate = nn.Linear(columns, width)
        self.used = 0.0

    def forward(self, x, hidden, prior):
        scores = self.attention(hidden) * prior
        if not torch.isfinite(scores).all():
            raise ValueError("attention diverged")
        mask = torch.softmax(scores, dim=-1)
        self.used = mask.max().item()
        masked = x * mask
        hidden = torch.tanh(self.mix(masked))
        log.debug("hidden %s", hidden.shape)
        hidden = hidden * torch.sigmoid(self.gate(masked))
        if hidden.abs().max() > 10:
            hidden = hidden.clamp(-10, 10)
        return hidden, prior * (1.3 - mask)


class TableNetwork(nn.Module):
    def __init__(self, columns=40, width=32, steps=10):
        super().__init__()
        self.start = nn.Linear(columns, width)
        self.step = DecisionStep(columns, width)
        self.decide = torch.compile(self.step, backend="aot_eager")
        self.out = nn.Linear(width, 3)
        self.steps = steps

    def forward(self, x):
        hidden, prior = self.start(x), torch.ones_like(x)
        total = 0
        for _ in range(self.steps):
            hidden, prior = self.decide(x, hidden, prior)
            total = total + torch.relu(hidden)
        return self.out(total)


def main():
    torch.manual_seed(38)
    x = torch.randn(6400, 40)
    group = (x[:, 0] + x[:, 1] * x[:, 2] > 0).long() + (x[:, 3] > 1).long()
    model = TableNetwork()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(4):
        for rows in torch.randperm(len(x)).split(128):
            loss = nn.functional.cross_entropy(model(x[rows]), group[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
