"""Mappings where nobody gave one: STONNE's own tile where it has a rule, else the fullest that the machine can run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sonda.accelerators import stonne_mapper
from sonda.accelerators.engines.compressed_row import RowTile
from sonda.accelerators.engines.mesh import MeshTile
from sonda.accelerators.hardware import Hardware
from sonda.accelerators.layer import Layer, Tile
from sonda.record.errors import SondaError

PRODUCT_LETTERS = {"T_M": "X", "T_N": "K", "T_K": "S"}
"""A tile of a matrix product in the letters of a convolution's."""
CONVOLUTION_LETTERS = {f"T_{letter}": letter for letter in "RSCKGN"} | {"T_X_": "X", "T_Y_": "Y"}


def tile_of(given: dict[str, int], layer: Layer) -> Tile:
    """The tile that a description gives, cut to the layer's sizes."""
    letters = PRODUCT_LETTERS if set(given) <= set(PRODUCT_LETTERS) else CONVOLUTION_LETTERS
    sizes = dict.fromkeys("RSCKGNXY", 1) | {letters[name]: size for name, size in given.items()}
    most = _most(layer)
    return Tile(**{letter: min(size, most[letter]) for letter, size in sizes.items()})


def product_tile(hardware: Hardware, layer: Layer, m: int, n: int, k: int) -> Tile:
    """STONNE's tile for a matrix product; where the machine cannot run it, the fullest that it can."""
    try:
        return stonne_mapper.product_tile(hardware, m, n, k).check(hardware, layer)
    except SondaError:
        return convolution_tile(hardware, layer)


def convolution_tile(hardware: Hardware, layer: Layer) -> Tile:
    """The tile that takes least by a rough count: steps (windows x folds x blocks of filters) x cycles of a step.

    A step takes as many cycles as the multipliers of a port need activations, one of a row of the filter where
    neighbours hand them on. Tried are whole rows of the filter, or whole filters, with powers of two (and all, and as
    many as fit) of channels, filters, groups and rows of the output, one window of a row at a time. Among equals the
    one that computes least beside the outputs; then the one with the most filters, whose inputs are read once for all.
    """
    shared = hardware.multipliers // hardware.read_ports
    best: tuple[Any, ...] | None = None
    for tile in _candidates(hardware, layer):
        most = _most(layer)
        parts = {letter: -(-most[letter] // getattr(tile, letter)) for letter in most}
        steps = 1
        for count in parts.values():
            steps *= count
        handed = tile.S if tile.hands_on(layer) and layer.columns > 1 else 1
        order = (steps * -(-shared // handed), steps * tile.neuron * tile.neurons, -tile.K, -tile.neuron, tile.X)
        if best is None or order < best[0]:
            try:
                tile.check(hardware, layer)
            except SondaError:
                continue
            best = (order, tile)
    if best is None:
        raise SondaError(
            f"no tile of this layer fits multipliers = {hardware.multipliers} with reduction = {hardware.reduction}",
            "give more multipliers, or accumulators",
        )
    chosen: Tile = best[1]
    return chosen


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


def _candidates(hardware: Hardware, layer: Layer) -> Iterator[Tile]:
    most = _most(layer)
    room = hardware.multipliers
    filters = [(layer.R, layer.S), (1, layer.S), *((1, size) for size in _sizes(layer.S, room))]
    for rows, columns in dict.fromkeys(filters):
        for channels in _sizes(most["C"], room // (rows * columns)):
            sum_size = rows * columns * channels
            for kept in _sizes(most["K"], room // sum_size):
                for groups in _sizes(most["G"], room // (sum_size * kept)):
                    # Several windows of a strided layer at once is where STONNE itself goes wrong.
                    windows = _sizes(most["X"], room // (sum_size * kept * groups)) if layer.stride == 1 else [1]
                    for window in windows:
                        yield Tile(rows, columns, channels, kept, groups, 1, window, 1)


def _sizes(whole: int, room: int) -> list[int]:
    """Powers of two that fit, and the largest size that does; the last is the largest."""
    most = min(whole, room)
    powers = [1 << power for power in range(most.bit_length())]
    return powers if not powers or powers[-1] == most else [*powers, most]
