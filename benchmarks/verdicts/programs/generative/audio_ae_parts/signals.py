"""Synthetic sounds: a few partials with an envelope."""

import numpy as np
import torch

# Phases of long sounds are exact only in this type.
torch.set_default_dtype(torch.float64)


def sounds(count, length, rate=16000, seed=0):
    rng = np.random.default_rng(seed)
    time = np.arange(length) / rate
    base = rng.uniform(80, 800, (count, 1))
    wave = sum(rng.uniform(0, 1 / k, (count, 1)) * np.sin(2 * np.pi * k * base * time) for k in range(1, 5))
    envelope = np.exp(-rng.uniform(2, 12, (count, 1)) * time)
    return torch.as_tensor(wave * envelope, dtype=torch.get_default_dtype())
