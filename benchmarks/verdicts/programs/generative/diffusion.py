"""Denoising diffusion on sequences of points: a token mixer predicts the noise."""

from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True)
class Settings:
    tokens: int = 128
    channels: int = 32
    batch: int = 96
    steps: int = 40
    depth: int = 3
    levels: int = 100


class Swish(nn.Module):
    def forward(self, x):
        gate = torch.clamp(x + 3.0, 0.0, 6.0) / 6.0
        return x * gate


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.shift = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        centred = x - x.mean(dim=-1, keepdim=True)
        variance = (centred * centred).mean(dim=-1, keepdim=True)
        return centred / torch.sqrt(variance + 1e-5) * self.scale + self.shift


class Mixer(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = Norm(channels)
        self.up = nn.Linear(channels, 4 * channels)
        self.act = Swish()
        self.inner = Norm(4 * channels)
        self.down = nn.Linear(4 * channels, channels)

    def forward(self, x):
        return x + self.down(self.act(self.inner(self.up(self.norm(x)))))


class Denoiser(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.level = nn.Embedding(s.levels, s.channels)
        self.place = nn.Parameter(torch.randn(s.tokens, s.channels) * 0.02)
        self.blocks = nn.Sequential(*[Mixer(s.channels) for _ in range(s.depth)])
        self.out = nn.Linear(s.channels, s.channels)

    def forward(self, x, t):
        return self.out(self.blocks(x + self.place + self.level(t)[:, None]))


def main(s):
    torch.manual_seed(0)
    model = Denoiser(s)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    kept = torch.cumprod(1 - torch.linspace(1e-4, 0.05, s.levels), dim=0)
    waves = torch.linspace(0, 6.28, s.tokens)[None, :, None] * torch.rand(512, 1, s.channels) * 4
    data = torch.sin(waves)
    for step in range(s.steps):
        clean = data[torch.randint(len(data), (s.batch,))]
        t = torch.randint(s.levels, (s.batch,))
        noise = torch.randn_like(clean)
        share = kept[t][:, None, None]
        guess = model(share.sqrt() * clean + (1 - share).sqrt() * noise, t)
        loss = nn.functional.mse_loss(guess, noise)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 10 == 9:
            print(f"{step + 1:3d} {loss.item():.4f}")


if __name__ == "__main__":
    main(Settings())
