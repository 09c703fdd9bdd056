"""Hear a wake word in a stream of filter-bank frames, with a recurrent network."""

import argparse
import math

import torch
from torch import nn


class Memory(nn.Module):
    """A recurrent layer with input, forget and output gates."""

    def __init__(self, inputs, size):
        super().__init__()
        self.size = size
        self.read = nn.ModuleDict({name: nn.Linear(inputs, size) for name in ("enter", "keep", "show", "fresh")})
        self.recall = nn.ModuleDict({name: nn.Linear(size, size) for name in ("enter", "keep", "show", "fresh")})

    def gate(self, name, frame, state):
        return self.read[name](frame) + self.recall[name](state)

    def forward(self, frames):
        state = frames.new_zeros(len(frames), self.size)
        cell = frames.new_zeros(len(frames), self.size)
        states = []
        for frame in frames.unbind(1):
            enter = torch.sigmoid(self.gate("enter", frame, state))
            keep = torch.sigmoid(self.gate("keep", frame, state))
            show = torch.sigmoid(self.gate("show", frame, state))
            cell = keep * cell + enter * torch.tanh(self.gate("fresh", frame, state))
            state = show * torch.tanh(cell)
            states.append(state)
        return torch.stack(states, dim=1)


class WakeWord(nn.Module):
    def __init__(self, bands, size):
        super().__init__()
        self.memory = Memory(bands, size)
        self.said = nn.Linear(size, 1)

    def forward(self, frames):
        return self.said(self.memory(frames)).amax(dim=1).squeeze(1)


def utterances(count, frames, bands):
    said = torch.rand(count) < 0.5
    sound = 0.5 * torch.randn(count, frames, bands)
    sweep = torch.sin(torch.linspace(0, math.pi * 3, 24))[:, None] * torch.linspace(1, 0, bands)
    begin = torch.randint(frames - 24, (count,))
    where = begin[:, None] + torch.arange(24)
    sound[torch.arange(count)[:, None], where] += said[:, None, None] * sweep
    return sound, said.float()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--size", type=int, default=48)
    parser.add_argument("--frames", type=int, default=100)
    parser.add_argument("--bands", type=int, default=20)
    options = parser.parse_args()
    torch.manual_seed(6)
    model = WakeWord(options.bands, options.size)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    for step in range(options.steps):
        sound, said = utterances(32, options.frames, options.bands)
        loss = nn.functional.binary_cross_entropy_with_logits(model(sound), said)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        if (step + 1) % 15 == 0:
            print(f"{step + 1} steps: {loss.item():.4f}")


if __name__ == "__main__":
    main()
