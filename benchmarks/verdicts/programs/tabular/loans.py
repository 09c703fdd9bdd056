"""Interest rates of loans as quantiles, with an ensemble of networks trained side by side."""

from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True)
class Settings:
    members: int = 8
    columns: int = 48
    hidden: int = 192
    batch: int = 256
    steps: int = 160
    quantiles: tuple = (0.1, 0.5, 0.9)


class EnsembleLinear(nn.Module):
    """One linear layer per member, in one batched product."""

    def __init__(self, members, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(members, inputs, outputs) / inputs**0.5)
        self.bias = nn.Parameter(torch.zeros(members, 1, outputs))

    def forward(self, x):
        return torch.baddbmm(self.bias, x, self.weight)


def pinball(predicted, actual, quantiles):
    difference = actual.unsqueeze(-1) - predicted
    return torch.maximum(quantiles * difference, (quantiles - 1) * difference).mean()


def main(settings):
    torch.manual_seed(60)
    x = torch.randn(20_000, settings.columns)
    rate = x[:, 0].exp().clamp(max=5) + 0.2 * x[:, 1] * torch.randn(len(x))
    quantiles = torch.tensor(settings.quantiles)
    model = nn.Sequential(
        EnsembleLinear(settings.members, settings.columns, settings.hidden),
        nn.ReLU(),
        EnsembleLinear(settings.members, settings.hidden, settings.hidden),
        nn.ReLU(),
        EnsembleLinear(settings.members, settings.hidden, len(quantiles)),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    for step in range(1, settings.steps + 1):
        rows = torch.randint(len(x), (settings.members, settings.batch))
        loss = pinball(model(x[rows]), rate[rows], quantiles)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 40 == 0:
            print(f"step {step}: {loss.item():.4f}")


if __name__ == "__main__":
    main(Settings())
