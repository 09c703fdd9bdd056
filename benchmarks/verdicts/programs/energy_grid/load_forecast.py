"""Tomorrow's load of substations from the hours before; the look-back differs from batch to batch."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

torch._dynamo.config.recompile_limit = 200


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, hours, width = x.shape
        q, k, v = self.qkv(self.before(x)).view(batch, hours, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, hours, width)
        x = x + self.out(mixed)
        return x + self.down(F.gelu(self.up(self.between(x))))


class Forecaster(nn.Module):
    def __init__(self, channels=6, width=128, depth=2, ahead=24):
        super().__init__()
        self.inward = nn.Linear(channels, width)
        self.position = nn.Parameter(0.02 * torch.randn(200, width))
        self.blocks = nn.ModuleList(Block(width, 4) for _ in range(depth))
        self.outward = nn.Linear(width, ahead)

    def forward(self, past):
        x = self.inward(past) + self.position[-past.shape[1] :]
        for block in self.blocks:
            x = block(x)
        return self.outward(x[:, -1])


def make_series(stations, hours):
    clock = torch.arange(hours) / 24
    phase = torch.rand(stations, 1, 6)
    waves = torch.sin(6.283 * (clock[None, :, None] * torch.tensor([1, 1 / 7, 2, 3, 0.5, 4]) + phase))
    return waves + 0.2 * torch.randn(stations, hours, 6)


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--steps", type=int, default=40)
    options.add_argument("--batch", type=int, default=32)
    given = options.parse_args()
    torch.manual_seed(11)
    series = make_series(120, 2000)
    net = Forecaster()
    model = torch.compile(net, dynamic=False, backend="aot_eager")
    optimizer = torch.optim.AdamW(net.parameters(), lr=5e-4)
    for step in range(given.steps):
        lookback = 60 + 5 * int(torch.randint(14, ()))
        rows = torch.randint(len(series), (given.batch,))
        start = int(torch.randint(0, 1800, ()))
        past = series[rows, start : start + lookback]
        future = series[rows, start + lookback : start + lookback + 24, 0]
        loss = F.mse_loss(model(past), future)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 9:
            print(f"step {step + 1} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
