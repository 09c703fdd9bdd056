"""Galaxy Zoo in small: a convolutional network answers four questions about each image of a galaxy."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class Survey:
    galaxies: int = 288
    side: int = 24
    bands: int = 5
    questions: int = 4
    batch: int = 8
    epochs: int = 1


class Stage(nn.Module):
    """Depthwise seeing, pointwise mixing, and overlapping pooling."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.seeing = nn.Conv2d(inputs, inputs, 7, padding=3, groups=inputs)
        self.mixing = nn.Conv2d(inputs, outputs, 1)
        self.pool = nn.MaxPool2d(3, stride=stride, padding=1)

    def forward(self, x):
        return self.pool(F.silu(self.mixing(self.seeing(x))))


class Zoo(nn.Module):
    def __init__(self, survey: Survey):
        super().__init__()
        self.stem = nn.Conv2d(survey.bands, 32, 3, padding=1)
        self.stages = nn.Sequential(Stage(32, 48, 2), Stage(48, 64, 1), Stage(64, 96, 2))
        self.answers = nn.Linear(96, survey.questions)

    def forward(self, images):
        return self.answers(self.stages(self.stem(images)).mean(dim=(2, 3)))


def observe(survey: Survey):
    grid = torch.linspace(-1, 1, survey.side)
    y, x = torch.meshgrid(grid, grid, indexing="ij")
    axis = torch.rand(survey.galaxies, 1, 1) * 2 + 0.5
    bright = torch.exp(-4 * (x.square() * axis + y.square() / axis))
    images = bright[:, None] + 0.1 * torch.randn(survey.galaxies, survey.bands, survey.side, survey.side)
    votes = torch.stack([axis[:, 0, 0] > 1, axis[:, 0, 0] > 1.5, axis[:, 0, 0] < 0.8, axis[:, 0, 0] > 2], dim=1)
    return images, votes.float()


def main():
    torch.manual_seed(4)
    survey = Survey()
    images, votes = observe(survey)
    zoo = Zoo(survey)
    optimizer = torch.optim.SGD(zoo.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    for epoch in range(survey.epochs):
        total = 0.0
        for chosen in torch.randperm(survey.galaxies).split(survey.batch):
            loss = F.binary_cross_entropy_with_logits(zoo(images[chosen]), votes[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(chosen)
        print(f"epoch {epoch}: {total / survey.galaxies:.4f}")


if __name__ == "__main__":
    main()
