"""Which tariff a household chooses: a vector for every household, and a network for its consumption."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Settings:
    households: int = 180_000
    width: int = 64
    hidden: int = 512
    tariffs: int = 12
    batch: int = 1024
    steps: int = 60
    rate: float = 1e-3


class TariffChoice(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.household = nn.Embedding(s.households, s.width)
        self.usage = nn.Sequential(
            nn.Linear(96 + s.width, s.hidden), nn.ReLU(), nn.Linear(s.hidden, s.hidden), nn.ReLU()
        )
        self.choice = nn.Linear(s.hidden, s.tariffs)

    def forward(self, ids, usage):
        return self.choice(self.usage(torch.cat([usage, self.household(ids)], dim=1)))


def run(s):
    torch.manual_seed(5)
    model = TariffChoice(s)
    optimizer = torch.optim.Adam(model.parameters(), lr=s.rate)
    profile = torch.randn(96, s.tariffs)
    for step in range(s.steps):
        ids = torch.randint(s.households, (s.batch,))
        usage = torch.rand(s.batch, 96)
        chosen = (usage @ profile + (ids % 7 == 0)[:, None] * profile[0]).argmax(dim=1)
        loss = F.cross_entropy(model(ids, usage), chosen)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print("step", step, "loss", round(loss.item(), 4))


run(Settings())
