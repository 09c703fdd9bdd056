"""Full-waveform denoising of seismic sections by a fixed filter bank and a learnt shrinkage."""

import math

import torch
from torch import nn
from torch.nn import functional as F


def smooth_sign(x):
    """A sign that is smooth, as in the paper: 2 / pi * atan of the sharpened input, damped by its size."""
    inner = x * math.sqrt(2 / math.pi)
    cubic = 0.044715 * x * x * x
    bend = 1 + 2 / math.pi * torch.atan(inner + cubic)
    return 0.5 * x * bend * torch.exp(-0.01 * x * x) + 0.01 * x


class Shrink(nn.Module):
    """Pushes small amplitudes towards zero, by a threshold for each trace."""

    def __init__(self, traces):
        super().__init__()
        self.threshold = nn.Parameter(torch.full((traces, 1), 0.3))
        self.gain = nn.Parameter(torch.ones(traces, 1))

    def forward(self, section):
        size = torch.sqrt(section * section + 1e-4)
        kept = section * torch.sigmoid(8 * (size - self.threshold))
        return self.gain * kept + smooth_sign(kept) * (1 - torch.exp(-size))


class Section(nn.Module):
    def __init__(self, traces):
        super().__init__()
        self.stages = nn.Sequential(Shrink(traces), Shrink(traces))
        self.mix = nn.Conv1d(traces, traces, 1)

    def forward(self, shots):
        return self.mix(F.avg_pool1d(self.stages(shots), 8))


def shots(count, traces, samples, generator):
    time = torch.linspace(0, 40, samples)
    arrive = torch.rand(count, traces, 1, generator=generator) * 40
    clean = torch.exp(-4 * (time - arrive).square())
    return clean + 0.2 * torch.randn(clean.shape, generator=generator), F.avg_pool1d(clean, 8)


def main(steps=30):
    torch.manual_seed(28)
    generator = torch.Generator().manual_seed(28)
    noisy, clean = shots(64, 32, 1024, generator)
    model = Section(32)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(1, steps + 1):
        chosen = torch.randint(len(noisy), (32,), generator=generator)
        loss = F.mse_loss(model(noisy[chosen]), clean[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step}: {loss.item():.5f}")


if __name__ == "__main__":
    main()
