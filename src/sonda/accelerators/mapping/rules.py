"""Mappings by rule: STONNE's own tile where its rule is known, else the fullest that the machine can run.

STONNE chooses tiles of matrix products and of compressed rows by rules that `stonne_mapper` repeats. For convolutions
it calls another program, mRNA, which is not repeated here, and its front end asks for a tile; a mesh it leaves to its
users as well. There, and where STONNE's tile cannot run, `fullest_tiles` and the rules of this file stand in.
"""

from __future__ import annotations

from functools import lru_cache

from sonda.accelerators.description.hardware import Hardware
from sonda.accelerators.engines.compressed_row import RowTile
from sonda.accelerators.engines.mesh import MeshTile
from sonda.accelerators.mapping import stonne as stonne_mapper
from sonda.accelerators.mapping.fullest_tiles import FullestTiles
from sonda.accelerators.operations.layer import StonneLayer, Tile
from sonda.record.errors import SondaError

PRODUCT_LETTERS = {"T_M": "X", "T_N": "K", "T_K": "S"}
"""A tile of a matrix product in the letters of a convolution's."""
CONVOLUTION_LETTERS = {f"T_{letter}": letter for letter in "RSCKGN"} | {"T_X_": "X", "T_Y_": "Y"}


def tile_of(given: dict[str, int], layer: StonneLayer) -> Tile:
    """The tile that a description gives, cut to the layer's sizes."""
    letters = PRODUCT_LETTERS if set(given) <= set(PRODUCT_LETTERS) else CONVOLUTION_LETTERS
    sizes = dict.fromkeys("RSCKGNXY", 1) | {letters[name]: size for name, size in given.items()}
    most = _largest_sizes(layer)
    return Tile(**{letter: min(size, most[letter]) for letter, size in sizes.items()})


def product_tile(hardware: Hardware, layer: StonneLayer) -> Tile:
    """STONNE's tile for a layer that is a matrix product; where the machine cannot run it, the fullest that it can."""
    return stonne_tile(hardware, layer) or convolution_tile(hardware, layer)


def stonne_tile(hardware: Hardware, layer: StonneLayer) -> Tile | None:
    """STONNE's tile for a layer that is a matrix product, whatever the ports; nothing where it cannot run."""
    layer.check()
    try:
        return _stonne_tile(hardware.multipliers, layer.rows, layer.K, layer.S).check(hardware, layer)
    except SondaError:
        return None


@lru_cache(maxsize=1 << 12)
def _stonne_tile(multipliers: int, m: int, n: int, k: int) -> Tile:
    """Remembered, because it does not depend on bandwidths: a sweep asks for it again and again."""
    return stonne_mapper.product_tile(Hardware(multipliers), m, n, k)


def convolution_tile(hardware: Hardware, layer: StonneLayer) -> Tile:
    """The tile that `fullest_tiles` chooses. Raises SondaError where the machine can run none."""
    (tiles,) = FullestTiles([layer]).choose_on([hardware])
    if tiles is None:
        raise SondaError(
            f"no tile of this layer fits multipliers = {hardware.multipliers} with reduction = {hardware.reduction}",
            "give more multipliers, or accumulators",
        )
    return Tile(*tiles[0].tolist())


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


def _largest_sizes(layer: StonneLayer) -> dict[str, int]:
    return {
        "R": layer.R, "S": layer.S, "C": layer.C // layer.G, "K": layer.K // layer.G, "G": layer.G, "N": layer.N,
        "X": layer.rows, "Y": layer.columns,
    }  # fmt: skip
