"""Blocks that look at their surroundings by pooling, and mix channels by a bottleneck turned inside out."""

import torch
from torch import nn


class PoolBlock(nn.Module):
    def __init__(self, width, kernel=3, grow=2):
        super().__init__()
        self.look = nn.MaxPool2d(kernel, stride=1, padding=kernel // 2)
        self.norm = nn.BatchNorm2d(width)
        self.mix = nn.Sequential(nn.Conv2d(width, grow * width, 1), nn.ReLU(), nn.Conv2d(grow * width, width, 1))

    def forward(self, x):
        return x + self.mix(self.norm(self.look(x) - x))


class PoolNet(nn.Module):
    def __init__(self, classes, width=48, depth=3):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 4, stride=4)
        self.blocks = nn.Sequential(*[PoolBlock(width) for _ in range(depth)])
        self.head = nn.Linear(width, classes)

    def forward(self, images):
        return self.head(self.blocks(self.stem(images)).mean((2, 3)))


def clips(count, classes, side, generator):
    kind = torch.randint(classes, (count,), generator=generator)
    axis = torch.linspace(0, 6, side)
    wave = torch.sin(axis * (kind + 1)[:, None])
    plain = wave[:, None, :, None] * wave[:, None, None, :]
    return plain + 0.3 * torch.randn(count, 3, side, side, generator=generator), kind
