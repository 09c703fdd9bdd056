"""Daylight on a desk from the sun and the geometry of a room: a wide network with one hidden layer of its own kind."""

import torch
from torch import nn


def swell(x):
    """A smooth ramp: x times the share of a normal distribution that is below it."""
    inner = 0.7978845608 * (x + 0.044715 * x * x * x)
    return 0.5 * x * (1.0 + torch.tanh(inner))


class Daylight(nn.Module):
    def __init__(self, inputs=24, width=1024):
        super().__init__()
        self.room = nn.Linear(inputs, width)
        self.mix = nn.Linear(width, 48)
        self.desk = nn.Linear(48, 1)

    def forward(self, rooms):
        return self.desk(torch.relu(self.mix(swell(self.room(rooms))))).squeeze(1)


def rooms(count):
    facts = torch.rand(count, 24)
    light = facts[:, 0] * facts[:, 1].sqrt() / (0.5 + facts[:, 2]) + 0.1 * facts[:, 3:8].sum(dim=1)
    return facts, light


torch.manual_seed(19)
model = Daylight()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
facts, light = rooms(40_000)
losses = []
for _ in range(75):
    chosen = torch.randint(len(facts), (6144,))
    loss = nn.functional.smooth_l1_loss(model(facts[chosen]), light[chosen])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.detach())
    if len(losses) == 15:
        print(f"mean loss {torch.stack(losses).mean().item():.5f}")
        losses.clear()
