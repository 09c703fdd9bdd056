"""Forecast long series on a GPU with a patch transformer in bfloat16."""

import argparse

import torch
from torch import nn


class Forecaster(nn.Module):
    def __init__(self, patch=16, patches=256, width=768, depth=8):
        super().__init__()
        self.patch = patch
        self.entry = nn.Linear(patch, width)
        self.position = nn.Parameter(0.02 * torch.randn(patches, width))
        layer = nn.TransformerEncoderLayer(width, 12, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.out = nn.Linear(width, patch)

    def forward(self, series):
        patches = series.unflatten(1, (-1, self.patch))
        hidden = self.entry(patches) + self.position[: patches.shape[1]]
        return self.out(self.body(hidden)[:, -1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--width", type=int, default=768)
    options = parser.parse_args()
    device = torch.device("cuda")
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    model = Forecaster(width=options.width).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4, fused=True)
    series = torch.randn(512, 4112, device=device).cumsum(1) / 64
    total = torch.zeros((), device=device)
    for step in range(1, options.steps + 1):
        batch = series[torch.randint(512, (options.batch,), device=device)]
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = nn.functional.mse_loss(model(batch[:, :4096]), batch[:, 4096:])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        total += loss.detach()
        if step % 40 == 0:
            print(f"step {step}: {total.item() / 40:.4f}")
            total.zero_()


if __name__ == "__main__":
    main()
