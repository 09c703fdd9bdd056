"""Attention over rows and columns of a table (GPU)."""

import argparse

import torch
from torch import nn


class MemoryGuard:
    """Called after each step so that long runs do not fragment memory."""

    def __init__(self, device):
        self.device = device
        self.peak = 0

    def __call__(self):
        if torch.cuda.is_available():
            self.peak = max(self.peak, torch.cuda.memory_reserved())
            torch.cuda.empty_cache()


class RowsAndColumns(nn.Module):
    def __init__(self, columns, width):
        super().__init__()
        self.columns = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True)
        self.rows = nn.TransformerEncoderLayer(columns * width, 4, width, dropout=0.0, batch_first=True)

    def forward(self, x):
        x = self.columns(x)
        return self.rows(x.flatten(1).unsqueeze(0)).squeeze(0).view_as(x)


class Saint(nn.Module):
    def __init__(self, columns=24, width=32, layers=2):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, width) * 0.1)
        self.layers = nn.Sequential(*[RowsAndColumns(columns, width) for _ in range(layers)])
        self.out = nn.Linear(width, 1)

    def forward(self, x):
        return self.out(self.layers(x.unsqueeze(2) * self.weight).mean(1)).squeeze(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=2048)
    options = parser.parse_args()
    device = torch.device("cuda")
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.manual_seed(57)
    model = Saint().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    guard = MemoryGuard(device)
    for step in range(options.steps):
        x = torch.randn(options.batch, 24, device=device)
        y = x[:, 0] * x[:, 1]
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        guard()
        if step % 50 == 49:
            print(f"step {step + 1}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
