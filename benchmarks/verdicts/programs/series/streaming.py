"""Adapt a forecaster to a stream: every new block of readings joins the history it learns from."""

import torch
from torch import nn

SENSORS = 64


class Memory:
    """The readings of the last while, newest last."""

    def __init__(self, size):
        self.size = size
        self.readings = torch.zeros(size, SENSORS)

    def append(self, block):
        self.readings = torch.cat([self.readings, block])[-self.size :].clone()

    def windows(self, count, length, generator):
        starts = torch.randint(self.size - length, (count,), generator=generator)
        return self.readings[starts.unsqueeze(1) + torch.arange(length)]


class Forecaster(nn.Module):
    def __init__(self, past=16, width=96):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(past * SENSORS, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
            nn.Linear(width, SENSORS),
        )  # fmt: skip

    def forward(self, past):
        return self.layers(past)


def stream(blocks, length, generator):
    phase = torch.rand(SENSORS, generator=generator) * 6
    for number in range(blocks):
        time = torch.arange(number * length, (number + 1) * length).unsqueeze(1)
        yield torch.sin(0.1 * time + phase) + 0.1 * torch.randn(length, SENSORS, generator=generator)


def main():
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(4)
    memory = Memory(100_000)
    model = Forecaster()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for number, block in enumerate(stream(240, 64, generator)):
        memory.append(block)
        windows = memory.windows(64, 17, generator)
        loss = nn.functional.mse_loss(model(windows[:, :16]), windows[:, 16])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if number % 40 == 0:
            print(f"block {number}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
