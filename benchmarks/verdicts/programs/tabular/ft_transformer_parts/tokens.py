"""One token per column of a table."""

import torch
from torch import nn


class NumberToken(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width) / width**0.5)
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, column):
        return column.unsqueeze(-1) * self.weight + self.bias


class FeatureTokens(nn.Module):
    def __init__(self, numbers, cardinalities, width):
        super().__init__()
        self.numbers = nn.ModuleList([NumberToken(width) for _ in range(numbers)])
        self.categories = nn.ModuleList([nn.Embedding(n, width) for n in cardinalities])

    def forward(self, numbers, categories):
        tokens = [token(numbers[:, i]) for i, token in enumerate(self.numbers)]
        tokens += [token(categories[:, i]) for i, token in enumerate(self.categories)]
        return torch.stack(tokens, dim=1)
