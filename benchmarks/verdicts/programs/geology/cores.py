"""Masked modelling of drill cores: chemistry of each metre as a token, a third of the metres hidden."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class Config:
    elements: int = 32
    metres: int = 128
    width: int = 256
    heads: int = 8
    depth: int = 2
    batch: int = 12
    steps: int = 32
    hidden: float = 0.33


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads = config.heads
        self.project = nn.Linear(config.width, 3 * config.width)
        self.out = nn.Linear(config.width, config.width)

    def forward(self, x):
        q, k, v = self.project(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.one, self.two = nn.LayerNorm(config.width), nn.LayerNorm(config.width)
        self.attention = Attention(config)
        self.feed = nn.Sequential(
            nn.Linear(config.width, 4 * config.width), nn.GELU(), nn.Linear(4 * config.width, config.width)
        )

    def forward(self, x):
        x = x + self.attention(self.one(x))
        return x + self.feed(self.two(x))


class CoreModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embed = nn.Linear(config.elements, config.width)
        self.missing = nn.Parameter(torch.zeros(config.width))
        self.depth = nn.Parameter(torch.randn(config.metres, config.width) * 0.02)
        self.blocks = nn.Sequential(*(Block(config) for _ in range(config.depth)))
        self.out = nn.Linear(config.width, config.elements)

    def forward(self, chemistry, hidden):
        x = torch.where(hidden[..., None], self.missing, self.embed(chemistry)) + self.depth
        return self.out(self.blocks(x))


def main():
    config = Config()
    torch.manual_seed(5)
    archive = torch.randn(96, config.metres, config.elements).cumsum(dim=1) * 0.1
    model = CoreModel(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    for step in range(1, config.steps + 1):
        chemistry = archive[torch.randint(len(archive), (config.batch,))]
        hidden = torch.rand(chemistry.shape[:2]) < config.hidden
        off = (model(chemistry, hidden) - chemistry).square().mean(dim=-1)
        loss = (off * hidden).sum() / hidden.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 8 == 0:
            print(f"step {step}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
