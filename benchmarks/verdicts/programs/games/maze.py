"""Learn the worth of moves in a maze from what was remembered while walking at random."""

import numpy as np
import torch
from memory.replay import Replay
from torch import nn

SIGHT, MOVES = 144, 4


class Worth(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.common = nn.Sequential(nn.Linear(SIGHT, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.place = nn.Linear(width, 1)
        self.edge = nn.Linear(width, MOVES)

    def forward(self, sights):
        h = self.common(sights)
        edge = self.edge(h)
        return self.place(h) + edge - edge.mean(1, keepdim=True)


def walk(rng, steps):
    walls = rng.standard_normal((SIGHT, MOVES)) / SIGHT**0.5
    for _ in range(steps):
        sight = rng.standard_normal(SIGHT, dtype=np.float32)
        move = int(rng.integers(MOVES))
        yield sight, move, float(np.tanh(sight @ walls[:, move]))


def main():
    torch.manual_seed(61)
    walker = walk(np.random.default_rng(62), 20_000)
    replay, worth = Replay(), Worth()
    optimizer = torch.optim.Adam(worth.parameters(), lr=1e-3)
    for _ in range(16_000):
        replay.remember(*next(walker))
    for step in range(1, 101):
        for _ in range(8):
            replay.remember(*next(walker))
        sights, moves, gains = replay.sample(512)
        guess = worth(sights).gather(1, moves[:, None]).squeeze(1)
        loss = nn.functional.mse_loss(guess, gains)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"{step:4d} {loss.item():.4f} ({len(replay)} remembered)")


if __name__ == "__main__":
    main()
