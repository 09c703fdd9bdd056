"""Elements that an engine reads from the global buffer, for many tiles at once; as the engine counts them itself."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sonda.accelerators.candidate_tiles import G, K, N, R, S, X, Y, extents, hands_on
from sonda.accelerators.engines.mesh import Product
from sonda.accelerators.layer import Layer

Whole = NDArray[np.int64]


def of_tiles(layer: Layer, tiles: Whole) -> Whole:
    """Weights and inputs, without partial sums, under tiles (rows of an array) on the flexible dense engine."""
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
    rows_of_windows = np.where(hands_on(layer, tiles), across + (columns - 1) * handed, columns * across)
    blocks = parts[:, K : N + 1].prod(axis=1)
    reads: Whole = weights + blocks * parts[:, X] * tiles[:, N] * tiles[:, G] * high * rows_of_windows * channels
    return reads


def of_mesh_tiles(product: Product, rows: Whole, columns: Whole) -> Whole:
    """Both operands under tiles of so many rows and columns of outputs."""
    return product.k * (product.m * -(-product.n // columns) + product.n * -(-product.m // rows))
