"""Two regions of work that are told apart in the joules of the machine."""

from time import perf_counter

import numpy as np

import sonda


def multiply(seconds: float, size: int) -> None:
    """Products of matrices, one after the other, for so long."""
    a = np.random.default_rng(0).random((size, size))
    end = perf_counter() + seconds
    while perf_counter() < end:
        a @ a


with sonda.region("small"):
    multiply(0.4, 32)
with sonda.region("large"):
    multiply(0.4, 256)
