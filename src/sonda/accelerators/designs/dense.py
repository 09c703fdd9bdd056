"""Many operations on many flexible dense engines, all at once, each as `engines.kinds.flexible_dense` has it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sonda.accelerators.description.engine import EngineDescription
from sonda.accelerators.description.hardware import Hardware
from sonda.accelerators.designs.tile_search import Tiled, search_all
from sonda.accelerators.engines import flexible_dense
from sonda.accelerators.engines.kinds.flexible_dense import Form, forms_of
from sonda.accelerators.engines.machines import equalise_ports, family, stack_machines
from sonda.accelerators.mapping import rules as maps
from sonda.accelerators.mapping.candidate_tiles import LETTERS, N, tiles_hand_on, tiles_sum_rightly
from sonda.accelerators.mapping.fullest_tiles import FullestTiles
from sonda.accelerators.mapping.search import Taken
from sonda.accelerators.operations.layer import StonneLayer, Tile
from sonda.accelerators.operations.program import ConvolutionShape, MatrixProduct

Whole = NDArray[np.int64]
AT_ONCE = 1 << 18
"""Multipliers of all machines, once for each operation, that are simulated in one go: their paths fill a cache."""


class FlexibleBatch:
    """Operations of a program, made ready once for all engines that may take them."""

    def __init__(self, shapes: Sequence[MatrixProduct | ConvolutionShape]) -> None:
        self._shapes = shapes
        self._known: dict[Any, tuple[Whole, tuple[int, ...]]] = {}
        self._fullest: dict[tuple[int, ...], FullestTiles] = {}

    def on(self, engines: Sequence[EngineDescription], given: bool) -> Iterator[tuple[list[int], list[Taken]]]:
        """Simulate all operations on each engine, under the tiles of its description or of a rule.

        `given` asks for the description's tiles; where it has none, the rule chooses. Yields the numbers of some of the
        engines and what they make of the operations, one engine's after another's. An engine that cannot run one of the
        operations is left out.
        """
        alike: dict[Hardware, list[int]] = {}
        for number, engine in enumerate(engines):
            alike.setdefault(family(engine.hardware), []).append(number)
        for numbers in alike.values():
            numbers.sort(key=lambda number: engines[number].hardware.multipliers)
            tiled = [(number, tiles) for number, tiles in self._tiles(engines, numbers, given) if tiles is not None]
            yield from self._simulate_family(engines, tiled)

    def best_on(self, engines: Sequence[EngineDescription]) -> Iterator[tuple[list[int], list[Taken]]]:
        """The same as `on`, under the tiles of fewest cycles with an unlimited buffer.

        An engine that has no tile by rule for one of the operations is left out, too.
        """
        alike: dict[Hardware, list[int]] = {}
        for number, engine in enumerate(engines):
            alike.setdefault(equalise_ports(engine.hardware), []).append(number)
        for numbers in alike.values():
            ruled, described = (dict(self._tiles(engines, numbers, given)) for given in (False, True))
            numbers = [number for number in numbers if ruled[number] is not None and described[number] is not None]
            if not numbers:
                continue
            starts = [[self._start(ruled[number]), self._start(described[number])] for number in numbers]
            machines = [engines[number].hardware for number in numbers]
            searched = search_all(self._forms, machines, starts)
            tiled = [(number, tiles) for number, tiles in zip(numbers, searched, strict=True) if tiles is not None]
            size = max(1, AT_ONCE // (len(self._shapes) * machines[0].multipliers))
            for begin in range(0, len(tiled), size):
                yield self._simulate_tiled(engines, tiled[begin : begin + size])

    def _start(self, tiles: Whole | None) -> Tiled:
        """Tiles by rule or description, as a search begins with them."""
        assert tiles is not None
        layers, tiles, count = self._split_samples(tiles.copy(), 1)
        form = np.where(count > self._count, 1, 0)
        form[~tiles_sum_rightly(StonneLayer(*layers.T), tiles)] = -1
        return Tiled(form, layers, count, tiles)

    def _simulate_tiled(
        self, engines: Sequence[EngineDescription], tiled: list[tuple[int, Tiled]]
    ) -> tuple[list[int], list[Taken]]:
        """Engines under tiles that they can run."""
        numbers = [number for number, _ in tiled]
        form, layers, count, tiles = (
            np.concatenate([getattr(engine_tiles, name) for _, engine_tiles in tiled])
            for name in ("form", "layers", "count", "tiles")
        )
        result = flexible_dense.simulate_all(self._machines(engines, numbers), layers, tiles)

        def words(place: int) -> dict[str, Any]:
            return self._forms[place % len(self._forms)][form[place]].words(Tile(*tiles[place].tolist()))

        return numbers, [Taken(list(range(len(self._forms))) * len(numbers), result, count, words)]

    def _simulate_family(
        self, engines: Sequence[EngineDescription], tiled: list[tuple[int, Whole]]
    ) -> Iterator[tuple[list[int], list[Taken]]]:
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
            layers, tiles, count = self._split_samples(tiles, len(numbers))
            able = flexible_dense.runs_all(self._machines(engines, numbers), layers, tiles)
            can = np.all(able.reshape(-1, many), axis=1)
            if not can.all():
                rows = np.repeat(can, many)
                layers, tiles, count = layers[rows], tiles[rows], count[rows]
                numbers = [number for number, able_to_run in zip(numbers, can.tolist(), strict=True) if able_to_run]
            if numbers:
                result = flexible_dense.simulate_all(self._machines(engines, numbers), layers, tiles)
                yield numbers, [Taken(list(range(many)) * len(numbers), result, count, self._words(layers, tiles))]

    def _machines(self, engines: Sequence[EngineDescription], numbers: list[int]) -> Hardware:
        return stack_machines([engines[number].hardware for number in numbers], len(self._shapes))

    def _tiles(
        self, engines: Sequence[EngineDescription], numbers: list[int], given: bool
    ) -> list[tuple[int, Whole | None]]:
        """The number of every engine and its tiles, a row for each operation; None where an operation has no tile."""
        tiles_of: dict[int, Whole | None] = {}
        lacking: dict[tuple[int, ...], list[int]] = {}
        for number in numbers:
            tiles_of[number], rows = self._tiles_without_ports(engines[number], given)
            if rows:
                lacking.setdefault(rows, []).append(number)
        for rows, some in lacking.items():
            if rows not in self._fullest:
                self._fullest[rows] = FullestTiles([self._forms[row][0].layer for row in rows])
            fullest = self._fullest[rows].choose_on([engines[number].hardware for number in some])
            for number, chosen in zip(some, fullest, strict=True):
                tiles = tiles_of[number]
                if chosen is None or tiles is None:
                    tiles_of[number] = None
                else:
                    tiles_of[number] = tiles = tiles.copy()
                    tiles[list(rows)] = chosen
        return list(tiles_of.items())

    def _tiles_without_ports(self, engine: EngineDescription, given: bool) -> tuple[Whole, tuple[int, ...]]:
        """The tiles that do not depend on the engine's ports, and the rows of the operations that have none such."""
        described = (engine.tile, engine.convolution_tile) if given else ({}, {})
        hardware = equalise_ports(engine.hardware)
        key = (hardware, *(tuple(table.items()) for table in described))
        if key not in self._known:
            tiles = np.ones((len(self._forms), len(LETTERS)), np.int64)
            lacking = []
            for row, (form, *_) in enumerate(self._forms):
                own = described[0 if form.product else 1]
                tile = maps.tile_of(own, form.layer) if own else None
                if not own and form.product:
                    tile = maps.stonne_tile(hardware, form.layer)
                if tile is None:
                    lacking.append(row)
                else:
                    tiles[row] = tile.sizes
            self._known[key] = tiles, tuple(lacking)
        return self._known[key]

    def _split_samples(self, tiles: Whole, machines: int) -> tuple[Whole, Whole, Whole]:
        """Layers, tiles and how many like each follow each other, on so many machines.

        Neighbours hand activations on rightly only where one sample at a time is on the machine.
        """
        layers = np.tile(self._layers, (machines, 1))
        count = np.tile(self._count, machines)
        alone = (layers[:, N] > 1) & tiles_hand_on(StonneLayer(*layers.T), tiles)
        count[alone] *= layers[alone, N]
        layers[alone, N] = tiles[alone, N] = 1
        return layers, tiles, count

    def _words(self, layers: Whole, tiles: Whole) -> Callable[[int], dict[str, Any]]:
        def words(place: int) -> dict[str, Any]:
            possible = self._forms[place % len(self._forms)]
            form = possible[0] if layers[place, N] == possible[0].layer.N else possible[1]
            return form.words(Tile(*tiles[place].tolist()))

        return words

    @cached_property
    def _forms(self) -> list[tuple[Form, ...]]:
        return [forms_of(shape) for shape in self._shapes]

    @cached_property
    def _layers(self) -> Whole:
        """Sizes of the usual form of each operation, a row each."""
        return np.array([possible[0].layer.check().sizes for possible in self._forms], np.int64)

    @cached_property
    def _count(self) -> Whole:
        return np.array([possible[0].count for possible in self._forms], np.int64)
