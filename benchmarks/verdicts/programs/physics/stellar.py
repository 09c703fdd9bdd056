"""An ensemble of narrow, deep networks that interpolates tables of stellar opacity."""

import itertools

import torch
import torch.nn.functional as F
from stellar_parts.adabound import AdaBound
from torch import nn


class Member(nn.Module):
    def __init__(self, width=24, depth=6):
        super().__init__()
        sizes = [2] + [width] * depth
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(sizes))
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return self.head(x).squeeze(-1)


class Ensemble(nn.Module):
    def __init__(self, members=6):
        super().__init__()
        self.members = nn.ModuleList(Member() for _ in range(members))

    def forward(self, x):
        return torch.stack([member(x) for member in self.members])


def opacity(x):
    density, temperature = x.unbind(dim=-1)
    return torch.tanh(density - temperature.square()) + 0.3 * torch.sin(3 * temperature) * density


def main():
    torch.manual_seed(2)
    model = Ensemble()
    optimizer = AdaBound(model.parameters(), lr=2e-3, final_lr=0.05)
    for step in range(150):
        x = torch.rand(128, 2) * 4 - 2
        wanted = opacity(x)
        predicted = model(x)
        loss = F.mse_loss(predicted, wanted.expand_as(predicted))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 49:
            print(f"step {step + 1}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
