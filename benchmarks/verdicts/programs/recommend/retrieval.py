"""Answers recommendation requests from a catalogue of item vectors (inference only)."""

import torch
from torch import nn
from torch.nn import functional as F


class Catalogue:
    """Item vectors by product number; entries may be replaced at any time."""

    def __init__(self, width):
        self.width = width
        self.entries = {}

    def put(self, number, vector):
        self.entries[number] = F.normalize(vector, dim=0)

    @property
    def numbers(self):
        return list(self.entries)

    @property
    def matrix(self):
        return torch.stack(list(self.entries.values()))


class QueryTower(nn.Module):
    def __init__(self, inputs, width):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(inputs, 256), nn.ReLU(), nn.Linear(256, width))

    def forward(self, x):
        return F.normalize(self.layers(x), dim=-1)


class Recommender:
    def __init__(self, tower, catalogue):
        self.tower = tower
        self.catalogue = catalogue

    @torch.no_grad()
    def answer(self, requests, count=10):
        scores = self.tower(requests) @ self.catalogue.matrix.T
        return scores.topk(count, dim=1)


def main():
    torch.manual_seed(24)
    catalogue = Catalogue(48)
    for number, vector in enumerate(torch.randn(12_000, 48)):
        catalogue.put(number, vector)
    service = Recommender(QueryTower(64, 48).eval(), catalogue)
    best = 0.0
    for _ in range(400):
        found = service.answer(torch.randn(16, 64))
        best = max(best, found.values[:, 0].max().item())
    print(f"best match {best:.3f} among {len(catalogue.numbers)} items")


if __name__ == "__main__":
    main()
