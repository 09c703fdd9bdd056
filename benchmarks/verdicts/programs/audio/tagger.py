"""Tag the mood of pieces of music from spectrograms held in NumPy."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn


@dataclass(frozen=True)
class Setup:
    pieces: int = 256
    bands: int = 64
    frames: int = 64
    tags: int = 10
    batch: int = 16
    epochs: int = 4


def collection(setup):
    rng = np.random.default_rng(0)
    tags = (rng.random((setup.pieces, setup.tags)) < 0.2).astype(float)
    shapes = rng.normal(size=(setup.tags, setup.bands, setup.frames))
    spectrograms = np.tensordot(tags, shapes, 1) + rng.normal(size=(setup.pieces, setup.bands, setup.frames))
    return torch.from_numpy(spectrograms).unsqueeze(1), torch.from_numpy(tags)


def convolution(inputs, outputs):
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ELU(), nn.MaxPool2d(2))


class Tagger(nn.Module):
    def __init__(self, setup):
        super().__init__()
        self.features = nn.Sequential(convolution(1, 16), convolution(16, 32), convolution(32, 32))
        self.tags = nn.Linear(32, setup.tags)

    def forward(self, spectrograms):
        return self.tags(self.features(spectrograms).amax(dim=(2, 3)))


def main(setup):
    torch.manual_seed(0)
    spectrograms, tags = collection(setup)
    model = Tagger(setup).to(spectrograms.dtype)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.BCEWithLogitsLoss()
    for epoch in range(setup.epochs):
        order = torch.randperm(setup.pieces)
        total = 0.0
        for chosen in order.split(setup.batch):
            loss = criterion(model(spectrograms[chosen]), tags[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: {total / (setup.pieces // setup.batch):.4f}")


if __name__ == "__main__":
    main(Setup())
