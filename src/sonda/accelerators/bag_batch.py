"""All embedding bags of a step on compressed rows at once, each as `Placement` places it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sonda.accelerators import mapping as maps
from sonda.accelerators.engine_description import EngineDescription
from sonda.accelerators.engines.compressed_row import RowsByDense, RowTile, simulate_all
from sonda.accelerators.operation import Bags, Operation
from sonda.accelerators.placement import Placed

RULES = ("", "stonne")
"""Mappings that ask for nothing but the shape."""


def place_bags(engine: EngineDescription, operations: Sequence[Operation], how: str) -> list[Placed]:
    """The bags among these operations where they can be done together; nothing where they cannot.

    Raises SondaError where the engine cannot run them; which of them, only one by one can say.
    """
    if engine.kind != "compressed_row" or how not in RULES:
        return []
    by_tile: dict[RowTile, list[tuple[Operation, RowsByDense]]] = {}
    for operation in operations:
        if isinstance(operation.shape, Bags):
            product = RowsByDense(operation.shape.sizes.astype(np.int64), operation.shape.columns)
            by_tile.setdefault(_tile(engine, operation.shape, how), []).append((operation, product))
    placed = []
    for tile, some in by_tile.items():
        results = simulate_all(engine.hardware, [product for _, product in some], tile)
        for (operation, _), result in zip(some, results, strict=True):
            chosen = {"T_N": tile.columns, "T_K": tile.entries}
            placed.append(Placed(operation, engine, chosen, result))
    return placed


def _tile(engine: EngineDescription, bags: Bags, how: str) -> RowTile:
    if engine.tile and how == "":
        return RowTile(min(engine.tile["T_N"], bags.columns), engine.tile["T_K"])
    sparsity = min(1.0, max(0.0, 1 - int(bags.sizes.sum()) / (len(bags.sizes) * bags.rows)))
    return maps.rows_tile(engine.hardware, bags.columns, bags.rows, sparsity)
