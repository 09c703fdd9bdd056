"""Tiles of a dense layer that a machine can run and that sum rightly, as rows of one array."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache, reduce
from operator import mul

import numpy as np
from numpy.typing import NDArray

from sonda.accelerators.description.hardware import Hardware
from sonda.accelerators.operations.layer import StonneLayer, Tile

Whole = NDArray[np.int64]
LETTERS = "RSCKGNXY"
"""Columns of an array of tiles, in the order of Tile's fields."""
R, S, C, K, G, N, X, Y = range(8)
MOST = 1 << 17
"""Tiles that are listed; of more, those with fewer different sizes are taken."""


def extents(layer: StonneLayer) -> Whole:
    """The largest useful size of a tile in every letter; of many layers (whose sizes are arrays) a row for each."""
    return np.array(
        (layer.R, layer.S, layer.C // layer.G, layer.K // layer.G, layer.G, layer.N, layer.rows, layer.columns),
        np.int64,
    ).T


def row_products(sizes: Whole) -> Whole:
    """The product of every row; column by column, because rows are many and short."""
    product: Whole = reduce(mul, sizes.T)
    return product


def candidates(hardware: Hardware, layer: StonneLayer, most: int = MOST) -> Whole:
    """Tiles of the layer, a row each, without those that the machine cannot run or sums wrongly.

    All sizes where that gives at most `most` tiles, else a choice of them (see `combinations`).
    """
    largest = np.minimum(extents(layer), hardware.multipliers)
    if layer.stride > 1:
        # Several windows of a strided layer at once is where the reference itself goes wrong.
        largest[[X, Y]] = 1
    tiles = combinations(hardware.multipliers, tuple(extents(layer).tolist()), tuple(largest.tolist()), most)
    return tiles[runnable_tiles(hardware, layer, tiles)]


@lru_cache(maxsize=32)
def combinations(room: int, whole: tuple[int, ...], largest: tuple[int, ...], most: int = MOST) -> Whole:
    """Rows of sizes from 1 to the largest, whose product is at most `room`; at most `most` rows. Not to be written to.

    All sizes, if these are not too many. Otherwise those that are the smallest for the number of parts into which they
    cut the whole, and powers of two; if these are still too many, powers of two and the largest; then of four, and so
    on.
    """
    tiles = _list_combinations(room, [range(1, size + 1) for size in largest], most)
    base = 1
    while tiles is None:
        tiles = _list_combinations(room, [_few_sizes(*pair, base) for pair in zip(whole, largest, strict=True)], most)
        base = 2 if base == 1 else base * base
    tiles.flags.writeable = False
    return tiles


def runnable_tiles(hardware: Hardware, layer: StonneLayer, tiles: Whole) -> NDArray[np.bool_]:
    """Which of the tiles the machine can run (`Tile.check`) with right sums (`tile_sums_rightly`).

    The layer is one for all tiles, or one for each: then its sizes are arrays.
    """
    return fitting_tiles(hardware, layer, tiles) & tiles_sum_rightly(layer, tiles)


def fitting_tiles(hardware: Hardware, layer: StonneLayer, tiles: Whole) -> NDArray[np.bool_]:
    """Which of the tiles the machine can run (`Tile.check`)."""
    neuron, neurons = row_products(tiles[:, : C + 1]), row_products(tiles[:, K:])
    parts = -(-extents(layer) // tiles)
    folds = row_products(parts[:, : C + 1])
    used = neuron * neurons
    fitting: NDArray[np.bool_] = used <= hardware.multipliers
    if hardware.reduction == "TEMPORALRN":
        return fitting & (neuron == 1) & hardware.accumulators
    fitting &= hardware.multipliers > 1
    alone = (neuron > 1) | (neurons == 1)
    if hardware.reduction == "FENETWORK":
        return fitting & alone
    if hardware.accumulators:
        return fitting & (alone | (folds == 1))
    return fitting & ((folds == 1) | (used + neurons <= hardware.multipliers))


def tile_sums_rightly(layer: StonneLayer, tile: Tile) -> bool:
    """Whether the reference surely computes what it should under this tile; where not, its time may be of wrong sums.

    It does not for several windows of a strided layer at once, nor for several groups and several samples at once. It
    need not where neighbours hand activations on while the next block of filters may begin before this one is complete
    (several samples, rows of windows that the tile does not divide, groups whose filters it does not divide): weights
    can then overtake activations.
    """
    return bool(tiles_sum_rightly(layer, np.array([[getattr(tile, letter) for letter in LETTERS]], np.int64))[0])


def tiles_hand_on(layer: StonneLayer, tiles: Whole) -> NDArray[np.bool_]:
    """Which of the tiles have multipliers hand activations to their neighbours (`Tile.hands_on`), in rows of several
    windows."""
    handed: NDArray[np.bool_] = (tiles[:, Y] == 1) & (tiles[:, S] > 1) & (layer.S % tiles[:, S] == 0)
    handed &= (layer.stride == 1) & (layer.columns > 1)
    return handed


def tiles_sum_rightly(layer: StonneLayer, tiles: Whole) -> NDArray[np.bool_]:
    """Which of the tiles (rows of an array) sum rightly; the layer is one for all tiles, or one for each."""
    right = (tiles[:, G] == 1) | (tiles[:, N] == 1)
    right &= (layer.stride == 1) | ((tiles[:, X] == 1) & (tiles[:, Y] == 1))
    early = (layer.rows % tiles[:, X] > 0) | ((tiles[:, G] < layer.G) & (layer.K // layer.G % tiles[:, K] > 0))
    verdict: NDArray[np.bool_] = right & ~(tiles_hand_on(layer, tiles) & (early | (layer.N > 1)))
    return verdict


def _few_sizes(whole: int, largest: int, base: int) -> list[int]:
    """Sizes up to the largest: powers of `base` and the largest; for base 1, powers of two and even parts of the whole.

    Of the sizes that cut the whole into as many parts, an even one is the smallest.
    """
    powers = [max(base, 2) ** power for power in range(largest.bit_length())]
    # Above the root of the whole all numbers of parts are tried, below it all sizes.
    root = math.isqrt(whole) + 1
    even = [*range(1, root + 1), *(-(-whole // parts) for parts in range(1, root + 1))] if base == 1 else []
    return sorted({size for size in (*powers, *even, largest) if size <= largest})


def _list_combinations(room: int, sizes: Sequence[Sequence[int]], most: int) -> Whole | None:
    """Every combination of sizes that fits; None where there are more than `most`."""
    tiles = np.ones((1, len(sizes)), np.int64)
    used = np.ones(1, np.int64)
    for letter, tried in enumerate(sizes):
        ascending = np.array(tried, np.int64)
        fitting = np.searchsorted(ascending, room // used, side="right")
        total = int(fitting.sum())
        if total > most:
            return None
        # Every tile with every size that fits beside it: all with the first size, then all with the second, and so on.
        which = np.repeat(np.arange(len(tiles)), fitting)
        size = np.arange(total) - np.repeat(np.cumsum(fitting) - fitting, fitting)
        order = np.argsort(size, kind="stable")
        which, size = which[order], ascending[size[order]]
        tiles, used = tiles[which], used[which] * size
        tiles[:, letter] = size
    return tiles
