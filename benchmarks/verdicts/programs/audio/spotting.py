"""Spot keywords: log-mel features of short utterances, a recurrent network over them."""

import math

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

RATE = 8000
WORDS = 6


def mel_filters(bins, bands):
    """Triangular filters, rows are bands."""
    edges = 700 * (np.exp(np.linspace(np.log1p(50 / 700), np.log1p(RATE / 2 / 700), bands + 2)) - 1)
    frequencies = np.linspace(0, RATE / 2, bins)
    rising = (frequencies - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - frequencies) / (edges[2:] - edges[1:-1])[:, None]
    return np.maximum(0, np.minimum(rising, falling))


class Utterances(IterableDataset):
    """Tones in noise, cut into frames and turned into log-mel features as they come."""

    def __init__(self, count, frame=256, hop=64, bands=32):
        self.count = count
        self.frame = frame
        self.hop = hop
        self.filters = mel_filters(frame // 2 + 1, bands)

    def __iter__(self):
        rng = np.random.default_rng(11)
        for _ in range(self.count):
            word = int(rng.integers(WORDS))
            time = np.arange(RATE) / RATE
            wave = np.sin(2 * math.pi * (300 + 200 * word) * time) + 0.3 * rng.standard_normal(RATE)
            yield torch.from_numpy(self.features(wave)), word

    def features(self, wave):
        rows = []
        window = np.hanning(self.frame)
        for start in range(0, len(wave) - self.frame + 1, self.hop):
            spectrum = np.fft.rfft(wave[start : start + self.frame] * window)
            energy = self.filters @ (spectrum.real**2 + spectrum.imag**2)
            rows.append(np.log(energy + 1e-6))
        return np.stack(rows).astype(np.float32)


class Spotter(nn.Module):
    def __init__(self, bands=32, width=48):
        super().__init__()
        self.reduce = nn.Conv1d(bands, width, 5, stride=4)
        self.recur = nn.GRU(width, width, batch_first=True)
        self.words = nn.Linear(width, WORDS)

    def forward(self, features):
        reduced = torch.relu(self.reduce(features.transpose(1, 2))).transpose(1, 2)
        states, _ = self.recur(reduced)
        return self.words(states[:, -1])


def main():
    torch.manual_seed(0)
    model = Spotter()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    loader = DataLoader(Utterances(16 * 90), batch_size=16)
    right = seen = 0
    for step, (features, words) in enumerate(loader, 1):
        logits = model(features)
        loss = nn.functional.cross_entropy(logits, words)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        right += (logits.argmax(1) == words).sum().item()
        seen += len(words)
        if step % 30 == 0:
            print(f"step {step}: loss {loss.item():.4f}, accuracy {right / seen:.3f}")


if __name__ == "__main__":
    main()
