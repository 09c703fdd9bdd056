"""Yield of plots from weather through the season and what is recorded of each plot."""

from dataclasses import dataclass

import torch
from harvest_parts.scope import StepScope
from torch import nn


@dataclass
class Visit:
    day: int
    height: float
    notes: list[str]


@dataclass
class Plot:
    number: int
    variety: int
    visits: list[Visit]


def survey(plots, visits, generator):
    """Plots as they stand in the growers' register."""
    heights = torch.rand(plots, visits, generator=generator).cumsum(1).tolist()
    return [
        Plot(number, number % 40, [Visit(9 * turn, height, ["seen"]) for turn, height in enumerate(row)])
        for number, row in enumerate(heights)
    ]


class Yield(nn.Module):
    def __init__(self, weather=8, visits=12, varieties=40, width=96):
        super().__init__()
        self.season = nn.GRU(weather, width, batch_first=True)
        self.variety = nn.Embedding(varieties, 16)
        self.growth = nn.Linear(visits, 32)
        self.out = nn.Sequential(nn.Linear(width + 48, 64), nn.Tanh(), nn.Linear(64, 1))

    def forward(self, weather, variety, heights):
        season = self.season(weather)[1].squeeze(0)
        return self.out(torch.cat([season, self.variety(variety), self.growth(heights)], 1)).squeeze(1)


def main():
    generator = torch.Generator().manual_seed(8)
    torch.manual_seed(8)
    register = survey(3_000, 12, generator)
    variety = torch.tensor([plot.variety for plot in register])
    heights = torch.tensor([[visit.height for visit in plot.visits] for plot in register])
    model = Yield()
    optimizer = torch.optim.NAdam(model.parameters(), lr=2e-3)
    scope = StepScope("harvest")
    for _ in range(60):
        with scope:
            chosen = torch.randint(len(register), (96,), generator=generator)
            weather = torch.randn(len(chosen), 26, 8, generator=generator)
            tonnes = heights[chosen].mean(1) + weather[:, :, 0].mean(1)
            loss = nn.functional.smooth_l1_loss(model(weather, variety[chosen], heights[chosen]), tonnes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print(f"last loss {loss.item():.4f} for {register[0].visits[-1].day} days")


if __name__ == "__main__":
    main()
