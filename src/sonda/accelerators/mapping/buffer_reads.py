"""Elements that an engine reads and writes in the global buffer, for many tiles at once; as the engine counts them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sonda.accelerators.description.hardware import Hardware
from sonda.accelerators.engines.mesh import Product
from sonda.accelerators.mapping.candidate_tiles import C, G, K, N, R, S, X, Y, extents, row_products, tiles_hand_on
from sonda.accelerators.memory.reuse import Accesses
from sonda.accelerators.operations.layer import StonneLayer

Whole = NDArray[np.int64]


def tile_accesses(hardware: Hardware, layer: StonneLayer, tiles: Whole) -> Accesses:
    """Accesses of a layer on the flexible dense engine, for tiles that are rows of an array."""
    parts = -(-extents(layer) // tiles)
    channels, filters = layer.C // layer.G, layer.K // layer.G
    weights = parts[:, N] * parts[:, G] * tiles[:, G] * filters * channels * layer.R * layer.S

    def covered(windows: Whole, part: Whole, whole: int) -> Whole:
        """Rows or columns of inputs under so many windows, summed over the folds of the filter's side."""
        more = (windows - 1) * layer.stride
        return whole + more * -(-whole // part)

    high = covered(tiles[:, X], tiles[:, R], layer.R)
    across = covered(tiles[:, Y], tiles[:, S], layer.S)
    # Where neighbours hand on, only the last column of a fold is read for the windows that follow the first of a row.
    handed = layer.S // tiles[:, S]
    columns = parts[:, Y]
    rows_of_windows = np.where(tiles_hand_on(layer, tiles), across + (columns - 1) * handed, columns * across)
    blocks = row_products(parts[:, K : N + 1])
    inputs = blocks * parts[:, X] * tiles[:, N] * tiles[:, G] * high * rows_of_windows * channels
    folds = row_products(parts[:, : C + 1])
    # Without accumulators every sum goes back to the buffer after each fold but the last.
    back = folds - 1 if hardware.sums_through_memory else np.zeros_like(folds)
    sums = blocks * parts[:, X] * parts[:, Y] * row_products(tiles[:, K:]) * back
    writes = layer.N * layer.K * layer.rows * layer.columns * (1 + back)
    return Accesses(weights, inputs, sums, writes)


def mesh_tile_accesses(product: Product, rows: Whole, columns: Whole) -> Accesses:
    """Accesses of a product on the mesh, for tiles of these rows and columns of outputs."""
    weights = product.k * product.n * -(-product.m // rows)
    inputs = product.k * product.m * -(-product.n // columns)
    return Accesses(weights, inputs, np.zeros_like(rows), np.full_like(rows, product.m * product.n))


def scale_accesses(accesses: Accesses, count: int) -> Accesses:
    """The accesses of `count` such operations, one after the other."""
    return Accesses(*(count * elements for elements in accesses))
