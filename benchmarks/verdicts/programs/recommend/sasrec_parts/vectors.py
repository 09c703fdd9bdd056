"""Item vectors out of co-occurrence counts."""

import numpy as np


def item_vectors(items, width, seed=0):
    """Vectors of unit length, one row per item."""
    rng = np.random.default_rng(seed)
    counts = rng.poisson(2.0, size=(items, 4 * width))
    weights = np.log1p(counts)
    weights -= weights.mean(axis=0)
    projected = weights @ rng.normal(size=(4 * width, width)) / np.sqrt(width)
    return projected / np.linalg.norm(projected, axis=1, keepdims=True)
