"""Separate two talkers with masks estimated by a recurrent network."""

import torch
from separation_parts import runtime
from torch import nn


class Separator(nn.Module):
    def __init__(self, bins=129, width=192):
        super().__init__()
        self.entry = nn.Linear(bins, width)
        self.mix = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.GELU(), nn.Linear(width, 4 * width),
            nn.GELU(), nn.Linear(4 * width, width),
        )  # fmt: skip
        self.context = nn.Conv1d(width, width, 7, padding=3)
        self.masks = nn.Linear(width, 2 * bins)

    def forward(self, spectra):
        hidden = self.entry(spectra)
        hidden = hidden + self.mix(hidden)
        hidden = torch.relu(self.context(hidden.transpose(1, 2)).transpose(1, 2))
        return self.masks(hidden).unflatten(-1, (2, -1)).softmax(dim=2)


def mixtures(batch, frames, generator):
    voices = torch.rand(batch, frames, 2, 129, generator=generator) ** 3
    return voices.sum(2), voices


def main():
    runtime.prepare(seed=0)
    generator = torch.Generator().manual_seed(8)
    model = Separator()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
    for step in range(50):
        mixed, voices = mixtures(24, 100, generator)
        estimated = model(mixed) * mixed.unsqueeze(2)
        loss = nn.functional.mse_loss(estimated, voices)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step}: {loss.item():.5f}")


if __name__ == "__main__":
    main()
