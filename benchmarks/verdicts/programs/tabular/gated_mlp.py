"""Gated residual network for a large table (GPU)."""

import argparse

import torch
from torch import nn


class GatedBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        value, gate = self.up(self.norm(x)).chunk(2, dim=-1)
        return x + self.down(value * torch.sigmoid(gate))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--batch", type=int, default=8192)
    parser.add_argument("--width", type=int, default=2048)
    options = parser.parse_args()
    device = torch.device("cuda")
    torch.manual_seed(58)
    columns = 256
    x = torch.randn(options.batch * 8, columns, device=device)
    y = x[:, :16].square().mean(1)
    blocks = [GatedBlock(options.width) for _ in range(6)]
    model = nn.Sequential(nn.Linear(columns, options.width), *blocks, nn.Linear(options.width, 1)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    total = torch.zeros((), device=device)
    for step in range(1, options.steps + 1):
        at = step % 8 * options.batch
        with torch.autocast(device.type, torch.bfloat16):
            predicted = model(x[at : at + options.batch]).squeeze(1)
        loss = nn.functional.mse_loss(predicted.float(), y[at : at + options.batch])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        total += loss.detach()
        if step % 50 == 0:
            print(f"step {step}: {total.item() / 50:.4f}")
            total.zero_()


if __name__ == "__main__":
    main()
