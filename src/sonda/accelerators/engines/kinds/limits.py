"""Limits that several kinds of engine share: of tiles on a line of multipliers, and of what sums sparse operands."""

from __future__ import annotations

import math
from collections.abc import Iterator

from sonda.accelerators.description.engine import EngineDescription
from sonda.record.errors import SondaError

FEWEST_FOR_TREE = 4
"""Multipliers that bitmaps (vectors of at least three ones) and merging trees need."""


def wrong_line_tiles(description: EngineDescription, wrong: set[str], pairs: bool = False) -> Iterator[SondaError]:
    """Why the tiles that a description gives do not fit a line of multipliers and what sums behind it.

    `pairs` says that no sum may be of one product only, whatever the reduction.
    """
    hardware = description.hardware
    for name, tile in (("tile", description.tile), ("convolution_tile", description.convolution_tile)):
        if not tile:
            continue
        used = math.prod(tile.values())
        if "multipliers" not in wrong and used > hardware.multipliers:
            yield SondaError(
                f"{name} takes {used} multipliers ({' x '.join(tile)}), there are {hardware.multipliers}",
                "make it smaller",
            )
        if "reduction" in wrong:
            continue
        summed = tile["T_K"] if name == "tile" else tile["T_R"] * tile["T_S"] * tile["T_C"]
        letters = "T_K" if name == "tile" else "T_R x T_S x T_C"
        if hardware.reduction == "TEMPORALRN" and summed > 1:
            yield SondaError(f"{name}: {letters} = {summed}, but TEMPORALRN has no adders", "use 1")
        if summed == 1 and (pairs or (hardware.reduction == "FENETWORK" and used > 1)):
            yield SondaError(f"{name}: {letters} = 1 puts two sums on one adder", "give at least 2")


def wrong_reduction(description: EngineDescription, wrong: set[str]) -> Iterator[SondaError]:
    """Why a reduction cannot sum what a sparse engine puts on the multipliers."""
    reduction = description.hardware.reduction
    if "reduction" not in wrong and reduction != "ASNETWORK":
        yield SondaError(
            f"reduction = {reduction!r} cannot sum what {description.kind} puts on the multipliers",
            "use ASNETWORK or leave it out",
        )


def wrong_tree(description: EngineDescription, wrong: set[str]) -> Iterator[SondaError]:
    """Why there are too few multipliers for vectors of any length."""
    multipliers = description.hardware.multipliers
    if "multipliers" not in wrong and multipliers < FEWEST_FOR_TREE:
        yield SondaError(
            f"multipliers = {multipliers} is too few for {description.kind}", f"give at least {FEWEST_FOR_TREE}"
        )
