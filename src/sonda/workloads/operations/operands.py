"""Values of operands: the same in every framework, from numpy's generator."""

from __future__ import annotations

from math import prod
from typing import Any

PERIOD = 1 << 22
"""Values after which those of a large operand repeat (16 MiB): drawing gigabytes would take longer than measuring."""


def new_generator(seed: int) -> Any:
    """A fresh `numpy.random.Generator`."""
    import numpy as np

    return np.random.default_rng(seed)


def draw_values(shape: tuple[int, ...], generator: Any) -> Any:
    """An array of this shape with float32 values of the normal distribution, drawn from `generator`."""
    import numpy as np

    count = prod(shape)
    block = generator.standard_normal(min(count, PERIOD), dtype=np.float32)
    return block.reshape(shape) if count <= PERIOD else np.resize(block, shape)
