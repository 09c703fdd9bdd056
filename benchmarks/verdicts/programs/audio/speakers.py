"""Embed speakers: every speaker has a vector that its utterances are drawn to."""

import argparse

import torch
from torch import nn
from torch.nn import functional


class Recogniser(nn.Module):
    def __init__(self, speakers, features=40, width=64):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv1d(features, 64, 5, stride=2),
            nn.ReLU(),
            nn.Conv1d(64, width, 3, stride=2),
            nn.ReLU(),
            nn.AdaptiveAvgPool1d(1),
            nn.Flatten(),
        )
        self.voices = nn.Embedding(speakers, width)

    def forward(self, utterances, speakers, others):
        found = functional.normalize(self.encoder(utterances), dim=1)
        near = functional.normalize(self.voices(speakers), dim=1)
        far = functional.normalize(self.voices(others), dim=1)
        return functional.relu(0.3 + (found * far).sum(1) - (found * near).sum(1)).mean()


def utterances(speakers, batch, steps):
    generator = torch.Generator().manual_seed(6)
    for _ in range(steps):
        who = torch.randint(speakers, (batch,), generator=generator)
        others = torch.randint(speakers, (batch,), generator=generator)
        yield torch.randn(batch, 40, 60, generator=generator), who, others


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--speakers", type=int, default=60_000)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=140)
    options = parser.parse_args()
    torch.manual_seed(0)
    model = Recogniser(options.speakers)
    body = torch.optim.Adam(model.encoder.parameters(), lr=1e-3)
    table = torch.optim.Adam(model.voices.parameters(), lr=1e-2)
    for step, batch in enumerate(utterances(options.speakers, options.batch, options.steps)):
        loss = model(*batch)
        body.zero_grad()
        table.zero_grad()
        loss.backward()
        body.step()
        table.step()
        if step % 20 == 0:
            print(step, f"{loss.item():.4f}")


if __name__ == "__main__":
    main()
