"""Classify tiles of satellite images of many bands on a GPU."""

import argparse

import torch
from torch import nn

BANDS = 13


def network(width=32, classes=10):
    return nn.Sequential(
        nn.Conv2d(BANDS, width, 5, stride=4, padding=2),
        nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(2 * width, classes),
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tiles", type=int, default=512)
    parser.add_argument("--side", type=int, default=128)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=40)
    options = parser.parse_args()
    device = torch.device("cuda")
    torch.manual_seed(0)
    tiles = torch.rand(options.tiles, BANDS, options.side, options.side)
    labels = torch.randint(10, (options.tiles,))
    model = network().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(options.epochs):
        total = torch.zeros((), device=device)
        for start in range(0, options.tiles, options.batch):
            images = tiles[start : start + options.batch].to(device)
            target = labels[start : start + options.batch].to(device)
            loss = nn.functional.cross_entropy(model(images), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        if epoch % 10 == 0:
            print(f"epoch {epoch}: {total.item():.4f}")


if __name__ == "__main__":
    main()
