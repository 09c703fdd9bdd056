"""Describe recordings of a hydrophone, in pascal as the instrument wrote them, by their spectra."""

import torch
from torch import nn


class Spectrum(nn.Module):
    """Magnitudes of a short-time transform."""

    def __init__(self, size=512, hop=256):
        super().__init__()
        self.size = size
        self.hop = hop
        self.register_buffer("window", torch.hann_window(size))

    def forward(self, wave):
        parts = torch.view_as_real(
            torch.stft(wave, self.size, self.hop, window=self.window, center=False, return_complex=True)
        )
        power = parts.square().sum(-1)
        return power.sqrt()


class Describer(nn.Module):
    def __init__(self, bins=257, width=32, kinds=4):
        super().__init__()
        self.spectrum = Spectrum()
        self.norm = nn.InstanceNorm1d(bins, eps=1e-12)
        self.body = nn.Sequential(nn.Conv1d(bins, width, 3), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten())
        self.kinds = nn.Linear(width, kinds)

    def forward(self, wave):
        with torch.no_grad():
            spectrum = self.norm(self.spectrum(wave))
        return self.kinds(self.body(spectrum))


def recordings(batch, generator, kinds=4):
    """Faint sources: pressures of some 1e-21."""
    kind = torch.randint(kinds, (batch,), generator=generator)
    time = torch.linspace(0, 1, 32768)
    tone = torch.sin(2 * torch.pi * (200 + 150 * kind.view(-1, 1)) * time)
    return (tone + torch.randn(batch, 32768, generator=generator)) * 3e-22, kind


def main():
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    model = Describer()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    library = [recordings(8, generator) for _ in range(6)]
    for step in range(120):
        waves, kinds = library[step % len(library)]
        loss = nn.functional.cross_entropy(model(waves), kinds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
