"""Learning the pressure of flow in porous rock; snapshots are archived in the background."""

import tempfile

import torch
import torch.nn.functional as F
from darcy_parts.archive import Archive
from torch import nn


class PressureNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.convs = nn.ModuleList(
            nn.Conv2d(a, b, 3, padding=2**i, dilation=2**i)
            for i, (a, b) in enumerate([(1, width), (width, width), (width, width)])
        )
        self.head = nn.Conv2d(width, 1, 1)

    def forward(self, rock):
        h = rock
        for conv in self.convs:
            h = F.gelu(conv(h))
        return self.head(h).squeeze(1)


def rocks(batch, size=40):
    noise = torch.randn(batch, 1, size, size)
    rock = (F.avg_pool2d(noise, 5, 1, 2) > 0).float() * 9 + 3
    pressure = F.avg_pool2d(1 / rock, 9, 1, 4).squeeze(1)
    return rock / 12, pressure


def main():
    torch.manual_seed(4)
    model = PressureNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    with tempfile.TemporaryDirectory() as folder, Archive(folder) as archive:
        for step in range(80):
            rock, pressure = rocks(8)
            predicted = model(rock)
            loss = F.mse_loss(predicted, pressure)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            archive.put(step, predicted.detach()[0])
            if step % 20 == 19:
                print(f"step {step + 1}: loss {loss.item():.5f}")


if __name__ == "__main__":
    main()
