"""Tempo of a piece from its mel spectrogram, with a convolutional network."""

import torch
from torch import nn


def stage(inward, outward):
    return [nn.Conv2d(inward, outward, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(outward), nn.ReLU()]


class Tempo(nn.Module):
    def __init__(self, classes=30):
        super().__init__()
        self.stem = nn.Sequential(*stage(8, 64), *stage(64, 128))
        self.body = nn.Sequential(
            nn.Conv2d(128, 128, 3, padding=1, bias=False), nn.BatchNorm2d(128), nn.ReLU(), *stage(128, 256)
        )
        self.head = nn.Linear(256, classes)

    def forward(self, spectra):
        return self.head(self.body(self.stem(spectra)).mean(dim=(2, 3)))


def spectrograms(count, classes=30):
    tempo = torch.randint(classes, (count,))
    time = torch.arange(96)
    beat = torch.cos(6.283 * time * (tempo[:, None] + 4) / 96)
    spectra = beat[:, None, None, :] + 0.5 * torch.randn(count, 8, 40, 96)
    return spectra.to(memory_format=torch.channels_last), tempo


def main():
    torch.manual_seed(1)
    spectra, tempo = spectrograms(960)
    model = Tempo().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(2):
        for rows in torch.randperm(len(spectra)).split(48):
            loss = nn.functional.cross_entropy(model(spectra[rows]), tempo[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
