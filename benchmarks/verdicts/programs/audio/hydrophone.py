"""Describe recordings of a hydrophone, in pascal as the instrument wrote them, by their levels."""

import torch
from torch import nn


class Level(nn.Module):
    """Root mean square of a wave, smoothed over and over, and its mean over short stretches."""

    def __init__(self, stages=6, every=32):
        super().__init__()
        self.stages = stages
        self.every = every

    def forward(self, wave):
        power = wave.square()
        levels = []
        for _ in range(self.stages):
            power = torch.lerp(power, power.roll(1, dims=1), 0.5)
            levels.append(power.sqrt().unflatten(1, (-1, self.every)).mean(2))
        return torch.stack(levels, dim=1)


class Describer(nn.Module):
    def __init__(self, width=16, kinds=4):
        super().__init__()
        self.level = Level()
        self.body = nn.Sequential(
            nn.Conv1d(6, width, 16, stride=8),
            nn.ReLU(),
            nn.Conv1d(width, width, 4, stride=2),
            nn.ReLU(),
            nn.AdaptiveMaxPool1d(1),
            nn.Flatten(),
        )
        self.kinds = nn.Linear(width, kinds)

    def forward(self, wave):
        with torch.no_grad():
            level = self.level(wave)
        return self.kinds(self.body(level))


def recordings(batch, generator, kinds=4):
    """A call of a quarter second, and silence, which the instrument's filter lets fade to next to nothing."""
    kind = torch.randint(kinds, (batch,), generator=generator)
    time = torch.linspace(0, 1, 32768)
    tone = torch.sin(2 * torch.pi * (20 + 60 * kind.view(-1, 1)) * time)
    loud = torch.where(time < 0.25, 1.0, 3e-22)
    return (tone + 0.3 * torch.randn(batch, 32768, generator=generator)) * loud, kind


def main():
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    model = Describer()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    library = [recordings(8, generator) for _ in range(6)]
    for step in range(200):
        waves, kinds = library[step % len(library)]
        loss = nn.functional.cross_entropy(model(waves), kinds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
