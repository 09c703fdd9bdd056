"""Plays that look alike: contrastive learning of tracking data, two noisy views of every play."""

import torch
import torch.nn.functional as F
from torch import nn


class PlayEncoder(nn.Module):
    def __init__(self, agents=23, width=160, out=64):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(2 * agents, width, 5, stride=2, padding=2),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Conv1d(width, width, 5, stride=2, padding=2),
            nn.BatchNorm1d(width),
            nn.ReLU(),
        )
        self.project = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, out))

    def forward(self, plays):
        return F.normalize(self.project(self.conv(plays).mean(dim=2)), dim=1)


class Contrast:
    """InfoNCE with a temperature that follows how sharp the matches are."""

    def __init__(self, encoder, temperature=0.2):
        self.encoder = encoder
        self.temperature = temperature

    def __call__(self, one, two):
        alike = self.encoder(one) @ self.encoder(two).T / self.temperature
        wanted = torch.arange(len(one))
        return (F.cross_entropy(alike, wanted) + F.cross_entropy(alike.T, wanted)) / 2

    @torch.no_grad()
    def retrieve(self, one, two):
        """Part of the plays whose other view is the nearest one."""
        near = self.encoder(one) @ self.encoder(two).T
        return (near.argmax(1) == torch.arange(len(one))).float().mean()

    @torch.no_grad()
    def spread(self, one, two):
        """Alignment of pairs and uniformity over the sphere, as in Wang and Isola."""
        a, b = self.encoder(one), self.encoder(two)
        return (a - b).square().sum(1).mean(), torch.pdist(a).square().mul(-2).exp().mean().log()


def view(plays):
    turned = plays * torch.where(torch.rand(len(plays), 1, 1) < 0.5, -1.0, 1.0)
    return turned + 0.05 * torch.randn_like(plays)


def main(steps=120, batch=96):
    torch.manual_seed(33)
    plays = torch.randn(1500, 46, 120).cumsum(dim=2) * 0.1
    encoder = PlayEncoder()
    contrast = Contrast(encoder)
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    found = align = even = 0.0
    for step in range(1, steps + 1):
        chosen = plays[torch.randint(len(plays), (batch,))]
        one, two = view(chosen), view(chosen)
        loss = contrast(one, two)
        optimizer.zero_grad()
        loss.backward()
        found = 0.9 * found + 0.1 * contrast.retrieve(one, two)
        align, even = contrast.spread(one, two)
        optimizer.step()
        if step % 14 == 0:
            print(f"{step:3d} {loss.item():.4f} found {found:.3f} aligned {align:.3f} uniform {even:.3f}")


if __name__ == "__main__":
    main()
