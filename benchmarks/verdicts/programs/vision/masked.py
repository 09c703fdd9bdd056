"""Learn to fill in masked patches with a transformer, on a GPU."""

from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Config:
    patches: int = 256
    pixels: int = 768
    width: int = 1024
    depth: int = 8
    heads: int = 16
    batch: int = 32
    steps: int = 60


class Masked(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.entry = nn.Linear(config.pixels, config.width)
        self.position = nn.Parameter(0.02 * torch.randn(config.patches, config.width))
        layer = nn.TransformerEncoderLayer(
            config.width, config.heads, 4 * config.width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.body = nn.TransformerEncoder(layer, config.depth, enable_nested_tensor=False)
        self.out = nn.Linear(config.width, config.pixels)

    def forward(self, patches, hidden):
        seen = self.entry(patches).masked_fill(hidden.unsqueeze(-1), 0.0)
        return self.out(self.body(seen + self.position))


def train(config):
    device = torch.device("cuda")
    torch.manual_seed(0)
    model = Masked(config).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
    images = torch.randn(128, config.patches, config.pixels, device=device)
    for step in range(config.steps):
        patches = images[torch.randint(128, (config.batch,), device=device)]
        hidden = torch.rand(config.batch, config.patches, device=device) < 0.5
        error = (model(patches, hidden) - patches).square().mean(-1)
        loss = (error * hidden).sum() / hidden.sum()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step}: {loss.item():.4f}")


if __name__ == "__main__":
    train(Config())
