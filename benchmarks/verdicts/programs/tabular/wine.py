"""Quality of wines: a residual network, batches straight from tensors."""

import math

import torch
from torch import nn


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))

    def forward(self, x):
        return x + self.layers(x)


def wines(count):
    x = torch.randn(count, 60)
    return x, torch.tanh(x[:, 0] * x[:, 1]) + 0.3 * x[:, 2:6].sum(1)


def learning_rate(step, steps, peak=2e-3):
    return peak * 0.5 * (1 + math.cos(math.pi * step / steps))


if __name__ == "__main__":
    torch.manual_seed(59)
    x, quality = wines(51_200)
    model = nn.Sequential(nn.Linear(60, 384), Residual(384), Residual(384), nn.Linear(384, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)
    steps = 200
    for step, rows in enumerate(torch.randperm(len(x)).chunk(steps)):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, steps)
        loss = nn.functional.mse_loss(model(x[rows]).squeeze(1), quality[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 49:
            print(f"{step + 1:4d} {loss.item():.4f}")
