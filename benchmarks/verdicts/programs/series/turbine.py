"""Find anomalies of a turbine with a temporal convolutional network."""

import torch
from torch import nn


class Residual(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.pad = nn.ConstantPad1d((2 * dilation, 0), 0.0)
        self.convolve = nn.Conv1d(width, width, 3, dilation=dilation)
        self.mix = nn.Conv1d(width, width, 1)

    def forward(self, x):
        return x + self.mix(torch.relu(self.convolve(self.pad(x))))


class Monitor(nn.Module):
    """Predicts each sensor's next reading."""

    def __init__(self, sensors=16, width=64, depth=6):
        super().__init__()
        self.entry = nn.Conv1d(sensors, width, 1)
        self.body = nn.Sequential(*(Residual(width, 2**i) for i in range(depth)))
        self.output = nn.Conv1d(width, sensors, 1)

    def forward(self, readings):
        return self.output(self.body(self.entry(readings)))


def readings(generator, batch=16, sensors=16, length=257):
    drift = torch.randn(batch, sensors, length, generator=generator).cumsum(-1) / 16
    return drift + torch.sin(torch.arange(length) * 0.3)


def main():
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    model = Monitor()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(80):
        batch = readings(generator)
        loss = nn.functional.mse_loss(model(batch[..., :-1]), batch[..., 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
