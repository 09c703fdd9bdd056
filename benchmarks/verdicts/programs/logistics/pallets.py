"""How pallets will be damaged: an autoencoder of sensor windows, large errors are damage."""

import torch
from pallets_parts.machine import prepare
from torch import nn


class AutoEncoder(nn.Sequential):
    def __init__(self, window=512, width=1024, code=64):
        super().__init__(
            nn.Linear(window, width), nn.ReLU(),
            nn.Linear(width, width), nn.ReLU(),
            nn.Linear(width, code),
            nn.Linear(code, width), nn.ReLU(),
            nn.Linear(width, width), nn.ReLU(),
            nn.Linear(width, window),
        )  # fmt: skip


def windows(count, length, generator):
    shocks = torch.rand(count, length, generator=generator) < 0.01
    noise = torch.randn(count, length, generator=generator)
    return noise.cumsum(1) / length**0.5 + 4 * shocks


def main(steps=40, batch=1024):
    generator = prepare(seed=3)
    data = windows(8192, 512, generator)
    model = AutoEncoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    for step in range(1, steps + 1):
        window = data[torch.randint(len(data), (batch,), generator=generator)]
        loss = nn.functional.mse_loss(model(window), window)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step}, error {loss.item():.4f}")


if __name__ == "__main__":
    main()
