"""Melodies as a language: an LSTM that predicts the next note, its weights kept beside it on disk."""

import tempfile
from pathlib import Path

import torch
from torch import nn


class Melodist(nn.Module):
    def __init__(self, notes=128, width=768, layers=2):
        super().__init__()
        self.note = nn.Embedding(notes, width)
        self.memory = nn.LSTM(width, width, layers, batch_first=True)
        self.next = nn.Linear(width, notes)

    def forward(self, notes, state=None):
        hidden, state = self.memory(self.note(notes), state)
        return self.next(hidden), state


def tunes(batch, length):
    steps = torch.randint(-3, 4, (batch, length))
    return (60 + steps.cumsum(dim=1)).clamp(0, 127)


def save(folder, step, model, optimizer):
    torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, folder / "melodist.pt")


def main(folder, steps=40, save_every=1):
    torch.manual_seed(14)
    model = Melodist()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(1, steps + 1):
        notes = tunes(16, 17)
        scores, _ = model(notes[:, :-1])
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), notes[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % save_every == 0:
            save(folder, step, model, optimizer)
        if step % 10 == 0:
            print(f"step {step}: {loss.item():.4f}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
