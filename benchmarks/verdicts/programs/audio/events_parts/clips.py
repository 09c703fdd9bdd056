"""Clips with events in them, heard through a simple room."""

import numpy as np
import torch
from torch.utils.data import Dataset

LENGTH = 4000


def resonance(wave, frequency, damping=0.995):
    """The wave through a resonator of second order."""
    first = 2 * damping * np.cos(frequency)
    second = -damping * damping
    out = np.empty_like(wave)
    one = two = 0.0
    for i, value in enumerate(wave):
        now = value + first * one + second * two
        out[i] = now
        one, two = now, one
    return out / np.abs(out).max()


class Clips(Dataset):
    def __init__(self, count, events=8, rooms=8):
        self.count = count
        self.events = events
        self.rooms = rooms

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        present = (rng.random(self.events) < 0.3).astype(np.float32)
        time = np.arange(LENGTH)
        wave = 0.1 * rng.standard_normal(LENGTH)
        for event in np.flatnonzero(present):
            wave += np.sin(0.05 * (event + 1) * time)
        heard = sum(resonance(wave, f) for f in rng.uniform(0.1, 2.0, self.rooms))
        return torch.from_numpy(heard.astype(np.float32)), torch.from_numpy(present)
