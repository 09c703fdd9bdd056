"""Many operations on engines whose time depends on shapes only, all at once, each as `dense_operation` has it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sonda.accelerators import mapping as maps
from sonda.accelerators.candidate_tiles import N, hands_on
from sonda.accelerators.dense_operation import Form, forms
from sonda.accelerators.engine_description import EngineDescription
from sonda.accelerators.engines import flexible_dense, mesh
from sonda.accelerators.fullest_tiles import FullestTiles
from sonda.accelerators.hardware import Hardware
from sonda.accelerators.layer import Layer, Tile
from sonda.accelerators.machines import family, together
from sonda.accelerators.operation import Bags, Convolution, MatrixProduct
from sonda.accelerators.taken import Taken
from sonda.record.errors import SondaError

Whole = NDArray[np.int64]
AT_ONCE = 1 << 18
"""Multipliers of all machines, once for each operation, that are simulated in one go: their paths fill a cache."""


class DenseOperations:
    """Operations of a program, made ready once for all engines that may take them. Raises SondaError where no dense
    engine can take one; which, only one by one can say."""

    def __init__(self, shapes: Sequence[MatrixProduct | Convolution | Bags]) -> None:
        self._shapes = [shape for shape in shapes if not isinstance(shape, Bags)]
        if len(self._shapes) < len(shapes):
            raise SondaError("a dense engine cannot sum the rows of a bag", "route embedding_bag to a sparse engine")
        self._ruled: dict[Any, Whole | None] = {}

    def on(self, engines: Sequence[EngineDescription], given: bool) -> Iterator[tuple[list[int], Taken]]:
        """All of them under the tiles that the descriptions give, where that is wanted and there are any, else under a
        rule's: on some of the engines at a time, with their numbers, an engine's operations after another's. An engine
        that cannot run one of them is left out."""
        alike: dict[Hardware, list[int]] = {}
        for number, engine in enumerate(engines):
            if engine.kind == "mesh":
                with suppress(SondaError):
                    yield [number], self._on_mesh(engine, given)
            else:
                alike.setdefault(family(engine.hardware), []).append(number)
        for numbers in alike.values():
            numbers.sort(key=lambda number: engines[number].hardware.multipliers)
            tiled = [(number, tiles) for number, tiles in self._tiles(engines, numbers, given) if tiles is not None]
            yield from self._on_dense(engines, tiled)

    def _on_mesh(self, engine: EngineDescription, given: bool) -> Taken:
        products, count = self._products
        tile = engine.tile if given and engine.tile else {"T_M": engine.hardware.rows, "T_N": engine.hardware.columns}
        sizes = np.minimum((tile["T_M"], tile["T_N"]), products[:, :2])
        result = mesh.simulate_all(engine.hardware, products, sizes)
        return Taken(
            range(len(count)),
            result,
            count,
            lambda place: dict(zip(("T_M", "T_N"), sizes[place].tolist(), strict=True)),
        )

    def _on_dense(
        self, engines: Sequence[EngineDescription], tiled: list[tuple[int, Whole]]
    ) -> Iterator[tuple[list[int], Taken]]:
        many = len(self._shapes)
        begin = 0
        while begin < len(tiled):
            # They ascend, so the last of a portion is the largest.
            end = begin + 1
            while end < len(tiled) and (
                (end + 1 - begin) * many * engines[tiled[end][0]].hardware.multipliers <= AT_ONCE
            ):
                end += 1
            numbers = [number for number, _ in tiled[begin:end]]
            tiles = np.concatenate([tiles for _, tiles in tiled[begin:end]])
            begin = end
            layers, tiles, count = self._apart(tiles, len(numbers))
            can = flexible_dense.runs_all(self._machines(engines, numbers), layers, tiles).reshape(-1, many).all(axis=1)
            if not can.all():
                rows = np.repeat(can, many)
                layers, tiles, count = layers[rows], tiles[rows], count[rows]
                numbers = [number for number, able in zip(numbers, can, strict=True) if able]
            if numbers:
                result = flexible_dense.simulate_all(self._machines(engines, numbers), layers, tiles)
                yield numbers, Taken(list(range(many)) * len(numbers), result, count, self._words(tiles, count))

    def _machines(self, engines: Sequence[EngineDescription], numbers: list[int]) -> Hardware:
        return together([engines[number].hardware for number in numbers], len(self._shapes))
