"""Stellar parameters from spectra with a one-dimensional convolutional network."""

import torch
from spectra_parts.archive import Archive
from torch import nn


def block(inputs, outputs, stride):
    return [nn.Conv1d(inputs, outputs, 7, stride=stride, padding=3), nn.BatchNorm1d(outputs), nn.LeakyReLU(0.1)]


def build(example):
    """A network that suits the spectra it will be given."""
    net = nn.Sequential(
        *block(1, 32, 2), *block(32, 64, 2), *block(64, 64, 1), *block(64, 96, 2),
        nn.AdaptiveAvgPool1d(16), nn.Flatten(), nn.Linear(96 * 16, 128), nn.LeakyReLU(0.1), nn.Linear(128, 3),
    )  # fmt: skip
    return net.to(example)


def nights(archive, count, stars):
    for _ in range(count):
        flux, label = archive.draw(stars)
        yield torch.from_numpy(flux).unsqueeze(1), torch.from_numpy(label)


def train(count=41, stars=32):
    torch.manual_seed(2)
    archive = Archive()
    source = nights(archive, count, stars)
    flux, label = next(source)
    net = build(flux)
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    for number, (flux, label) in enumerate(source, 1):
        off = net(flux) - label
        loss = off.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if number % 10 == 0:
            print(f"night {number}: temperature within {900 * off[:, 0].abs().mean().item():.0f} K")


if __name__ == "__main__":
    train()
