"""How many of each component a machine has: what static energy and area are counted by."""

from __future__ import annotations

import numpy as np

from sonda.accelerators.description.hardware import Hardware
from sonda.accelerators.engines.result import Count


def doublings(count: Count) -> Count:
    """How often 1 can be doubled without being more than this number, or each of an array."""
    return count.bit_length() - 1 if isinstance(count, int) else np.frexp(count)[1].astype(np.int64) - 1


def multipliers(hardware: Hardware) -> dict[str, Count]:
    """Instances in the section MSNetwork: a line of multipliers joined by links, or a mesh."""
    if hardware.rows:
        across = hardware.rows * (hardware.columns - 1) + hardware.columns * (hardware.rows - 1)
        count = hardware.rows * hardware.columns
        return {"MN_WIRE": across, "MULTIPLIER": count, "FIFO": 5 * count}
    count = hardware.multipliers
    return {"MN_WIRE": count - 1, "MULTIPLIER": count, "FIFO": 5 * count}


def reduction(hardware: Hardware) -> dict[str, Count]:
    """Instances in the section ReduceNetwork."""
    count = hardware.rows * hardware.columns or hardware.multipliers
    if hardware.reduction == "TEMPORALRN":
        return {"RN_WIRE": count, "ACCUMULATOR": count, "FIFO": 2 * count}
    # Level l of the tree has 2^(l-1) - 1 links between neighbours, l from 2 to the last: 2^levels / 2 - levels in all.
    levels = doublings(count)
    sideways = (1 << levels) // 2 - levels
    if hardware.reduction == "FENETWORK":
        return {"RN_WIRE": 3 * count - 1 + sideways, "ADDER": count, "FIFO": 5 * count}
    adders = count - 1
    if not hardware.accumulators:
        return {"RN_WIRE": 2 * adders + sideways, "ADDER": adders, "FIFO": 5 * adders}
    return {"RN_WIRE": 3 * adders + sideways, "ADDER": adders, "FIFO": 7 * adders, "ACCUMULATOR": adders}
