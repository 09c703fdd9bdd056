"""Which instrument plays: short recordings on disk, spectra, and a perceptron over them."""

import tempfile
from pathlib import Path

import torch
from instruments_parts.shelf import Shelf, record
from torch import nn
from torch.utils.data import DataLoader


def build(bins, kinds, width=2048):
    return nn.Sequential(
        nn.Linear(bins, width), nn.ReLU(),
        nn.Linear(width, width), nn.ReLU(),
        nn.Linear(width, kinds),
    )  # fmt: skip


def run(folder, epochs=6, kinds=8):
    torch.manual_seed(22)
    shelf = Shelf(record(folder, recordings=256, kinds=kinds))
    loader = DataLoader(shelf, batch_size=48, shuffle=True, drop_last=True)
    model = build(shelf[0][0].numel(), kinds)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4, fused=True)
    for epoch in range(epochs):
        for spectra, kind in loader:
            loss = nn.functional.cross_entropy(model(spectra), kind)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch + 1}: {loss.item():.4f}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        run(Path(folder))
