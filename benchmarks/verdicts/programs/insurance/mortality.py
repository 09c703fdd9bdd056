"""Tables of mortality, smoothed by a network over age, year and region."""

from dataclasses import dataclass, field

import torch
from mortality_parts.repeat import repeatable
from torch import nn


@dataclass
class Plan:
    seed: int = 7
    widths: list = field(default_factory=lambda: [64, 1024, 1024, 1024])
    batch: int = 640
    steps: int = 70
    rate: float = 1e-3


def encode(age, year, region):
    """Waves of several lengths for ages and years, and a mark for the region."""
    lengths = 2.0 ** torch.arange(12)
    waves = [torch.sin(age[:, None] / lengths), torch.cos(age[:, None] / lengths)]
    waves += [torch.sin(year[:, None] / lengths), torch.cos(year[:, None] / lengths)]
    return torch.cat([*waves, nn.functional.one_hot(region, 16)], dim=1)


def population(people):
    age, year = 100 * torch.rand(people), 1950 + 70 * torch.rand(people)
    region = torch.randint(16, (people,))
    log_rate = -9 + 0.085 * age - 0.01 * (year - 1950) + 0.02 * region
    return encode(age, year, region), log_rate + 0.1 * torch.randn(people)


def build(plan):
    layers = []
    for inward, outward in zip(plan.widths[:-1], plan.widths[1:], strict=True):
        layers += [nn.Linear(inward, outward), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(plan.widths[-1], 1))


def smooth(plan):
    repeatable(plan.seed)
    people, log_rate = population(20_000)
    model = build(plan)
    optimizer = torch.optim.SGD(model.parameters(), lr=plan.rate, momentum=0.9)
    for step in range(plan.steps):
        rows = torch.randint(len(people), (plan.batch,))
        loss = nn.functional.mse_loss(model(people[rows]).squeeze(1), log_rate[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 9:
            print(f"{step + 1}/{plan.steps} {loss.item():.4f}")


if __name__ == "__main__":
    smooth(Plan())
