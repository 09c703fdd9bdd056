"""Learn a dynamic range compressor: threshold, ratio and a small network for the make-up gain."""

import torch
from torch import nn

torch.manual_seed(0)


class Envelope(nn.Module):
    """Smoothed level of a signal: the state moves a fixed part of the way to each new value."""

    def __init__(self, release=0.9):
        super().__init__()
        self.release = release

    def forward(self, level):
        state = torch.zeros_like(level[:, 0])
        states = []
        for index in range(level.shape[1]):
            state = self.release * state + (1 - self.release) * level[:, index]
            states.append(state)
        return torch.stack(states, dim=1)


class Compressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.envelope = Envelope()
        self.threshold = nn.Parameter(torch.tensor(0.5))
        self.slope = nn.Parameter(torch.tensor(0.3))
        self.makeup = nn.Sequential(nn.Conv1d(1, 8, 9, padding=4), nn.Tanh(), nn.Conv1d(8, 1, 9, padding=4))

    def forward(self, wave):
        level = self.envelope(wave.abs())
        over = torch.relu(level - self.threshold)
        gain = torch.exp(-self.slope * over)
        return wave * gain + self.makeup((wave * gain).unsqueeze(1)).squeeze(1)


def target(wave):
    return torch.tanh(1.5 * wave) / 1.5


model = Compressor()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
generator = torch.Generator().manual_seed(9)
for step in range(120):
    phase = torch.linspace(0, 40, 1024) * torch.rand(16, 1, generator=generator)
    wave = 2 * torch.sin(phase) * torch.rand(16, 1, generator=generator)
    loss = nn.functional.mse_loss(model(wave), target(wave))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(f"{step}: {loss.item():.5f} (threshold {model.threshold.item():.3f})")
