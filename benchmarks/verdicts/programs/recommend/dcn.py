"""Deep and cross network on dense features (GPU)."""

import argparse

import torch
from torch import nn


class CrossLayer(nn.Module):
    def __init__(self, width, rank=64):
        super().__init__()
        self.down = nn.Linear(width, rank, bias=False)
        self.up = nn.Linear(rank, width)

    def forward(self, start, x):
        return start * self.up(self.down(x)) + x


class DCN(nn.Module):
    def __init__(self, width, layers=2):
        super().__init__()
        self.cross = nn.ModuleList([CrossLayer(width) for _ in range(layers)])
        self.out = nn.Linear(width, 1)

    def forward(self, x):
        start = x
        for layer in self.cross:
            x = layer(start, x)
        return self.out(x).squeeze(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=8192)
    options = parser.parse_args()
    device = torch.device("cuda")
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.manual_seed(52)
    width = 1024
    features = torch.randn(options.batch * 8, width)
    bought = (features[:, 0] * features[:, 1] > 0).float()
    model = DCN(width).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    for step in range(options.steps):
        at = step % 8 * options.batch
        x = features[at : at + options.batch].to(device)
        y = bought[at : at + options.batch].to(device)
        loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 50 == 49:
            print(f"step {step + 1}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
