"""Pick arrivals of waves in seismograms with a one-dimensional U-shaped network."""

import torch
from torch import nn
from torch.nn import functional


def stage(inputs, outputs):
    return nn.Sequential(nn.Conv1d(inputs, outputs, 7, padding=3), nn.BatchNorm1d(outputs), nn.ReLU())


class Picker(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.down = nn.ModuleList([stage(3, width), stage(width, 2 * width), stage(2 * width, 2 * width)])
        self.up = nn.ModuleList([stage(4 * width, 2 * width), stage(3 * width, width)])
        self.out = nn.Conv1d(width, 1, 1)

    def forward(self, x):
        first = self.down[0](x)
        second = self.down[1](functional.max_pool1d(first, 4))
        third = self.down[2](functional.max_pool1d(second, 4))
        x = self.up[0](torch.cat([functional.interpolate(third, scale_factor=4), second], 1))
        x = self.up[1](torch.cat([functional.interpolate(x, scale_factor=4), first], 1))
        return self.out(x).squeeze(1)


def seismograms(batches, batch=16, length=1024):
    generator = torch.Generator().manual_seed(0)
    time = torch.arange(length).view(1, 1, -1)
    for _ in range(batches):
        arrival = torch.randint(100, length - 100, (batch, 1, 1), generator=generator)
        since = (time - arrival).clamp(min=0).float()
        signal = torch.sin(since * 0.4) * torch.exp(-since / 150)
        noise = 0.3 * torch.randn(batch, 3, length, generator=generator)
        yield signal + noise, torch.exp(-(((time - arrival) / 8.0) ** 2)).squeeze(1)


if __name__ == "__main__":
    torch.manual_seed(0)
    model = Picker()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step, (waves, target) in enumerate(seismograms(80)):
        loss = functional.binary_cross_entropy_with_logits(model(waves), target)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step}: {loss.item():.4f}")
