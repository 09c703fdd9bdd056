"""Spectra of waves hour by hour: a transformer completes hours that the satellite missed."""

import torch
from torch import nn
from torch.nn import functional as F


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.relu(self.up(self.norm2(x))))


class Gaps(nn.Module):
    def __init__(self, bins=64, hours=48, width=384, depth=2):
        super().__init__()
        self.read, self.write = nn.Linear(bins, width), nn.Linear(width, bins)
        self.hour = nn.Parameter(0.02 * torch.randn(hours, width))
        self.layers = nn.Sequential(*(Layer(width, 6) for _ in range(depth)))

    def forward(self, spectra, seen):
        return self.write(self.layers(self.read(spectra * seen) + self.hour))


def batches(count, size=16):
    bins, hours = torch.arange(64), torch.arange(48)[:, None]
    for _ in range(count):
        peak = 10 + 40 * torch.rand(size, 1, 1) + 4 * torch.sin(hours / 8 + 6 * torch.rand(size, 1, 1))
        spectra = torch.exp(-((bins - peak) / 6).square()) + 0.05 * torch.randn(size, 48, 64)
        yield spectra, (torch.rand(size, 48, 1) < 0.7).float()


torch.manual_seed(64)
model = Gaps()
optimizer = torch.optim.AdamW(model.parameters(), lr=4e-4, fused=True)
for number, (spectra, seen) in enumerate(batches(45), 1):
    loss = F.mse_loss(model(spectra, seen), spectra)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    if number % 15 == 0:
        print(f"batch {number}: {loss.item():.5f}")
