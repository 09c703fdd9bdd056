"""Points at which an option's price must fulfil its equation."""

import numpy as np


class Sampler:
    """Latin-hypercube points over price and time, and along the edges of the domain."""

    def __init__(self, high=2.5, horizon=1.0, seed=40):
        self.rng = np.random.default_rng(seed)
        self.high, self.horizon = high, horizon

    def column(self, count):
        return (self.rng.permutation(count) + self.rng.random(count)) / count

    def inside(self, count):
        return np.stack([self.high * self.column(count), self.horizon * self.column(count)], axis=1)

    def expiry(self, count):
        price = self.high * self.column(count)
        return np.stack([price, np.full(count, self.horizon)], axis=1), np.maximum(price - 1.0, 0.0)[:, None]
