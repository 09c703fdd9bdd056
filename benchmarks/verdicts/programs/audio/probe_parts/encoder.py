"""A stack of strided convolutions over raw audio, weights as they come from pretraining."""

import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self, width=64, depth=4):
        super().__init__()
        self.width = width
        self.entry = nn.Conv1d(1, width, 10, stride=5)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv1d(width, width, 3, stride=2, padding=1), nn.GroupNorm(8, width), nn.GELU())
            for _ in range(depth)
        )

    def forward(self, waves):
        hidden = torch.relu(self.entry(waves))
        for block in self.blocks:
            hidden = block(hidden)
        return hidden.mean(dim=2)
