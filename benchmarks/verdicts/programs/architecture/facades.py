"""Diffusion of facades: a denoiser over strips of windows."""

import torch
from facades_parts.schedule import Schedule
from torch import nn


class Mixer(nn.Module):
    """Mixes strips with each other, then the features of each strip."""

    def __init__(self, strips, width):
        super().__init__()
        self.strips = nn.Sequential(nn.Linear(strips, 2 * strips), nn.ReLU(), nn.Linear(2 * strips, strips))
        self.features = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))

    def forward(self, x):
        x = x + self.strips(x.transpose(1, 2)).transpose(1, 2)
        return x + self.features(x)


class Denoiser(nn.Module):
    def __init__(self, strips=32, pixels=64, width=256, depth=2):
        super().__init__()
        self.read = nn.Linear(pixels + 1, width)
        self.mixers = nn.Sequential(*(Mixer(strips, width) for _ in range(depth)))
        self.write = nn.Linear(width, pixels)

    def forward(self, noisy, level):
        level = level[:, None, None].expand(-1, noisy.shape[1], 1)
        return self.write(self.mixers(self.read(torch.cat([noisy, level], dim=2))))


def facades(count):
    across = torch.arange(64) % torch.randint(6, 12, (count, 1, 1)) < 4
    along = torch.arange(32)[:, None] % torch.randint(4, 8, (count, 1, 1)) < 3
    return (across & along).to(torch.get_default_dtype()) * 2 - 1


def main(steps=40):
    torch.manual_seed(33)
    schedule, denoiser = Schedule(400), Denoiser()
    optimizer = torch.optim.AdamW(denoiser.parameters(), lr=3e-4)
    for step in range(steps):
        clean = facades(64)
        noisy, noise, level = schedule.disturb(clean)
        loss = nn.functional.mse_loss(denoiser(noisy, level), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % 10 == 0:
            print(step + 1, f"{loss.item():.4f}")


main()
