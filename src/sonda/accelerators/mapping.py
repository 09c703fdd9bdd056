"""Mappings by rule: STONNE's own tile where its rule is known, else the fullest that the machine can run.

STONNE chooses tiles of matrix products and of compressed rows by rules that `stonne_mapper` repeats. For convolutions
it calls another program, mRNA, which is not repeated here, and its front end asks for a tile; a mesh it leaves to its
users as well. There, and where STONNE's tile cannot run, the rules of this file stand in.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from sonda.accelerators import least_cycles, stonne_mapper
from sonda.accelerators.candidate_tiles import C, K, N, X, extents, multiplied, runs
from sonda.accelerators.compiled import compiled
from sonda.accelerators.engines.compressed_row import RowTile
from sonda.accelerators.engines.mesh import MeshTile
from sonda.accelerators.few_tiles_kernel import _next, few
from sonda.accelerators.hardware import Hardware
from sonda.accelerators.layer import Layer, Tile
from sonda.record.errors import SondaError

Whole = NDArray[np.int64]
PRODUCT_LETTERS = {"T_M": "X", "T_N": "K", "T_K": "S"}
"""A tile of a matrix product in the letters of a convolution's."""
CONVOLUTION_LETTERS = {f"T_{letter}": letter for letter in "RSCKGN"} | {"T_X_": "X", "T_Y_": "Y"}


def tile_of(given: dict[str, int], layer: Layer) -> Tile:
    """The tile that a description gives, cut to the layer's sizes."""
    letters = PRODUCT_LETTERS if set(given) <= set(PRODUCT_LETTERS) else CONVOLUTION_LETTERS
    sizes = dict.fromkeys("RSCKGNXY", 1) | {letters[name]: size for name, size in given.items()}
    most = _most(layer)
    return Tile(**{letter: min(size, most[letter]) for letter, size in sizes.items()})


def product_tile(hardware: Hardware, layer: Layer) -> Tile:
    """STONNE's tile for a layer that is a matrix product; where the machine cannot run it, the fullest that it can."""
    layer.check()
    try:
        return _stonne_tile(hardware.multipliers, layer.rows, layer.K, layer.S).check(hardware, layer)
    except SondaError:
        return convolution_tile(hardware, layer)


@lru_cache(maxsize=1 << 12)
def _stonne_tile(multipliers: int, m: int, n: int, k: int) -> Tile:
    """Remembered, because it does not depend on bandwidths: a sweep asks for it again and again."""
    return stonne_mapper.product_tile(Hardware(multipliers), m, n, k)


def convolution_tile(hardware: Hardware, layer: Layer) -> Tile:
    """Of a few tiles the one that takes least by its lower bound, with one sample at a time.

    Tried are whole rows of the filter, or whole filters, with powers of two (and all, and as many as fit) of channels,
    filters, groups and rows of the output, one window of a row at a time, without those that could sum wrongly. Among
    equals the one that computes least beside the outputs; then the one with the most filters, whose inputs are read
    once for all.
    """
    return Tile(*convolution_tiles(hardware, [layer])[0].tolist())


def convolution_tiles(hardware: Hardware, layers: Sequence[Layer]) -> Whole:
    """The tiles of many layers at once, rows of an array."""
    sizes = np.array([layer.sizes for layer in layers], np.int64)
    sizes[:, N] = 1
    tried = [compiled(few, _next)(hardware.multipliers, most) for most in extents(Layer(*sizes.T))]
    which = np.repeat(np.arange(len(layers)), [len(one) for one in tried])
    tiles, sizes = np.concatenate(tried), sizes[which]
    kept = runs(hardware, Layer(*sizes.T), tiles)
    which, tiles, alone = which[kept], tiles[kept], Layer(*sizes[kept].T)
    computed = multiplied(-(-extents(alone) // tiles) * tiles)
    least = least_cycles.of_tiles(hardware, alone, tiles)
    neuron = multiplied(tiles[:, : C + 1])
    left = np.arange(len(tiles))
    for key in (least, computed, -tiles[:, K], -neuron, tiles[:, X]):
        # Layer by layer those with the smallest key are left.
        begins = np.searchsorted(which[left], np.arange(len(layers)))
        if (np.diff(begins, append=len(left)) == 0).any():
            raise SondaError(
                f"no tile of this layer fits multipliers = {hardware.multipliers} with reduction = "
                f"{hardware.reduction}",
                "give more multipliers, or accumulators",
            )
        smallest = np.minimum.reduceat(key[left], begins)
        left = left[key[left] == smallest[which[left]]]
    best: Whole = tiles[left[np.searchsorted(which[left], np.arange(len(layers)))]]
    return best


def rows_tile(hardware: Hardware, n: int, k: int, sparsity: float) -> RowTile:
    """STONNE's tile for compressed rows times a dense matrix; never less than two entries, which an adder needs."""
    tile = stonne_mapper.rows_tile(hardware, n, k, sparsity)
    return tile if tile.entries > 1 else RowTile(min(n, hardware.multipliers // 2), 2)


def mesh_tile(hardware: Hardware, m: int, n: int) -> MeshTile:
    """The whole mesh, or as much of it as the product has rows and columns."""
    return MeshTile(min(m, hardware.rows), min(n, hardware.columns))


def tile_words(tile: Tile, product: bool) -> dict[str, int]:
    """A tile as its users write it: T_M, T_N, T_K of a product, STONNE's eight letters of a convolution."""
    letters = PRODUCT_LETTERS if product else CONVOLUTION_LETTERS
    return {name: getattr(tile, letter) for name, letter in letters.items()}


def _most(layer: Layer) -> dict[str, int]:
    return {
        "R": layer.R, "S": layer.S, "C": layer.C // layer.G, "K": layer.K // layer.G, "G": layer.G, "N": layer.N,
        "X": layer.rows, "Y": layer.columns,
    }  # fmt: skip
