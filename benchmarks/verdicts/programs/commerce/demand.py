"""Daily demand of many stores: one shared trunk, and a head of its own for every store."""

import torch
from store.rule import Decoupled
from torch import nn


class Demand(nn.Module):
    def __init__(self, stores=900, inputs=24, width=64):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.heads = nn.ParameterList(nn.Parameter(torch.randn(width) / width**0.5) for _ in range(stores))

    def forward(self, days):
        """Demand of every store on every day, days by stores."""
        return self.trunk(days) @ torch.stack(list(self.heads), dim=1)


class Chain:
    """Stores whose demand depends on the season, the weekday and weather in ways of their own."""

    def __init__(self, stores=900, inputs=24, seed=31):
        self.generator = torch.Generator().manual_seed(seed)
        self.taste = torch.randn(inputs, stores, generator=self.generator) / inputs**0.5

    def days(self, count):
        features = torch.randn(count, len(self.taste), generator=self.generator)
        return features, torch.relu(features @ self.taste)


def main(steps=144):
    torch.manual_seed(3)
    chain, model = Chain(), Demand()
    optimizer = Decoupled(model.parameters())
    for step in range(steps):
        days, sold = chain.days(128)
        loss = nn.functional.huber_loss(model(days), sold)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % 24 == 0:
            print(f"after {step + 1} steps the loss is {loss.item():.4f}")


if __name__ == "__main__":
    main()
