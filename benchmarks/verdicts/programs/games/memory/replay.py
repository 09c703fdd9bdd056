"""What the player remembers."""

from collections import deque

import numpy as np
import torch


class Replay:
    def __init__(self, room=30_000, seed=60):
        self.sights = deque(maxlen=room)
        self.moves = deque(maxlen=room)
        self.gains = deque(maxlen=room)
        self.rng = np.random.default_rng(seed)

    def __len__(self):
        return len(self.moves)

    def remember(self, sight, move, gain):
        self.sights.append(sight)
        self.moves.append(move)
        self.gains.append(gain)

    def sample(self, size):
        chosen = self.rng.integers(0, len(self), size)
        sights = torch.from_numpy(np.array(self.sights))[chosen]
        moves = torch.tensor(self.moves)[chosen]
        gains = torch.tensor(self.gains)[chosen]
        return sights, moves, gains
