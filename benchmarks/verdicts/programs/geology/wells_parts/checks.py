"""Checks of what flows through the network: logs of wells hold all kinds of rubbish."""

import math


class Guard:
    """Remembers the largest value seen, and stops a run whose values run away."""

    def __init__(self, limit=1e4):
        self.limit = limit
        self.largest = 0.0

    def look(self, tensor):
        top = tensor.detach().abs().max().item()
        if math.isnan(top) or top > self.limit:
            raise FloatingPointError(f"values up to {top:g}")
        self.largest = max(self.largest, top)
        return tensor
