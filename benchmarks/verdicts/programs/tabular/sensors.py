"""Source classification from radio receiver readings: envelope of both quadratures into a small network."""

import torch
from torch import nn

VOLT = 1e-20  # readings are field strengths in V/m
CHANNELS = 2048


def readings(count, generator):
    kind = torch.randint(6, (count,), generator=generator)
    strength = 1 + 0.5 * torch.sin(torch.arange(CHANNELS) * (kind[:, None] + 1) / 60)
    in_phase = strength * torch.randn(count, CHANNELS, generator=generator) * VOLT
    quadrature = strength * torch.randn(count, CHANNELS, generator=generator) * VOLT
    return in_phase, quadrature, kind


class Envelope(nn.Module):
    """Amplitude per channel, relative to the mean of the reading."""

    def forward(self, in_phase, quadrature):
        amplitude = torch.sqrt(in_phase**2 + quadrature**2)
        return amplitude / amplitude.mean(dim=1, keepdim=True)


class SourceNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.envelope = Envelope()
        self.pool = nn.AvgPool1d(8)
        self.layers = nn.Sequential(nn.Linear(CHANNELS // 8, 128), nn.ReLU(), nn.Linear(128, 6))

    def forward(self, in_phase, quadrature):
        return self.layers(self.pool(self.envelope(in_phase, quadrature)))


if __name__ == "__main__":
    torch.manual_seed(35)
    in_phase, quadrature, kind = readings(5120, torch.Generator().manual_seed(35))
    model = SourceNetwork()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(10):
        right = 0
        for a, b, y in zip(in_phase.split(256), quadrature.split(256), kind.split(256), strict=True):
            scores = model(a, b)
            loss = nn.functional.cross_entropy(scores, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += (scores.argmax(1) == y).sum().item()
        print(f"epoch {epoch}: accuracy {right / len(kind):.3f}")
