"""Where the next stroke of a table tennis rally lands: a small transformer over strokes so far."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field

import torch
from torch import nn


@dataclass
class Settings:
    zones: int = 36
    strokes: int = 20
    width: int = 96
    layers: int = 2
    batch: int = 64
    steps: int = 96
    every: int = 6
    seed: int = 3
    held_out: int = 1200
    best: list[float] = field(default_factory=list)


class RallyModel(nn.Module):
    def __init__(self, settings: Settings):
        super().__init__()
        self.zone = nn.Embedding(settings.zones, settings.width)
        self.place = nn.Parameter(torch.zeros(settings.strokes - 1, settings.width))
        layer = nn.TransformerEncoderLayer(settings.width, 4, 2 * settings.width, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, settings.layers, enable_nested_tensor=False)
        self.out = nn.Linear(settings.width, settings.zones)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(settings.strokes - 1))

    def forward(self, strokes):
        return self.out(self.encoder(self.zone(strokes) + self.place, mask=self.mask, is_causal=True))


def surprise(model, rallies):
    scores = model(rallies[:, :-1])
    return nn.functional.cross_entropy(scores.flatten(0, 1), rallies[:, 1:].flatten())


def play(count, settings):
    rallies = torch.randint(settings.zones, (count, settings.strokes))
    answer = torch.randperm(settings.zones)
    for stroke in range(1, settings.strokes):
        usual = torch.rand(count) < 0.7
        rallies[:, stroke] = torch.where(usual, answer[rallies[:, stroke - 1]], rallies[:, stroke])
    return rallies


def run(settings: Settings):
    torch.manual_seed(settings.seed)
    rallies = play(2560 + settings.held_out, settings)
    held_out, rallies = rallies[: settings.held_out], rallies[settings.held_out :]
    model = RallyModel(settings)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(settings.steps):
        loss = surprise(model, rallies[torch.randint(len(rallies), (settings.batch,))])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % settings.every == 0:
            model.eval()
            with torch.inference_mode():
                settings.best.append(surprise(model, held_out).item())
            model.train()
    print(f"best of held-out rallies {min(settings.best):.4f}, last {settings.best[-1]:.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--every", type=int, default=2)
    parser.add_argument("--held-out", type=int, default=1200)
    given = parser.parse_args()
    run(Settings(every=given.every, held_out=given.held_out))
