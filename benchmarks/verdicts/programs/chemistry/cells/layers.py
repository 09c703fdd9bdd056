"""Layers for fields on a grid."""

import torch
from torch import nn


class Settle(nn.Module):
    """Brings every row to one scale, with a gain and a bend of its own."""

    def __init__(self, width):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))
        self.lift = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        middle = x - x.mean(dim=-1, keepdim=True)
        spread = torch.sqrt((middle**2).mean(dim=-1, keepdim=True) + 1e-5)
        y = middle / spread * self.gain + self.lift
        return y * (1 / (1 + torch.exp(-y)))


class Mix(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.settle = Settle(width)
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return x + self.linear(self.settle(x))
