"""Forecast sunspots with a small transformer over windows of months."""

import math

import torch
from torch import nn


class Forecaster(nn.Module):
    def __init__(self, months=96, width=96, depth=3):
        super().__init__()
        self.entry = nn.Linear(1, width)
        self.position = nn.Parameter(0.02 * torch.randn(months, width))
        layer = nn.TransformerEncoderLayer(width, 4, 3 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.out = nn.Linear(width, 12)

    def forward(self, months):
        return self.out(self.body(self.entry(months.unsqueeze(-1)) + self.position)[:, -1])


def sunspots(months=3000):
    generator = torch.Generator().manual_seed(0)
    time = torch.arange(months, dtype=torch.float32)
    cycle = (1 + torch.sin(time * 2 * math.pi / 132)) * (1 + 0.3 * torch.sin(time / 400))
    return cycle + 0.1 * torch.randn(months, generator=generator)


def main():
    torch.manual_seed(0)
    windows = sunspots().unfold(0, 108, 1)
    train, held = windows[:2400], windows[2500:2628]
    model = Forecaster()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    for step in range(60):
        batch = train[torch.randint(len(train), (32,))]
        loss = nn.functional.mse_loss(model(batch[:, :96]), batch[:, 96:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step}: {loss.item():.4f}")
    with torch.no_grad():
        print(f"held out: {nn.functional.mse_loss(model(held[:, :96]), held[:, 96:]).item():.4f}")


if __name__ == "__main__":
    main()
