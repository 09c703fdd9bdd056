"""The engine of compressed rows (MAGMA) as a kind: which operand is compressed, its tile, and what it reads again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from sonda.accelerators.description.engine import OPERATIONS, EngineDescription
from sonda.accelerators.description.hardware import Hardware
from sonda.accelerators.engines import compressed_row
from sonda.accelerators.engines.compressed_row import RowsByDense, RowTile, RowTimes
from sonda.accelerators.engines.contract import Engine
from sonda.accelerators.engines.kinds.limits import wrong_line_tiles, wrong_reduction
from sonda.accelerators.engines.result import Result, repeat_result, sum_results
from sonda.accelerators.mapping import least_cycles
from sonda.accelerators.mapping.candidate_tiles import combinations
from sonda.accelerators.mapping.rules import rows_tile
from sonda.accelerators.mapping.search import UNBOUNDED, Choice, FormMappings, MappingSpace, Taken
from sonda.accelerators.memory.lookups import RowStream, remembered_stream
from sonda.accelerators.memory.reuse import (
    Accesses,
    Operand,
    ProductSizes,
    Reuse,
    TableRows,
    distinct_inputs,
    reread_operand,
)
from sonda.accelerators.operations.matrices import matrices_of, products_of_entries
from sonda.accelerators.operations.program import Bags, ConvolutionShape, MatrixProduct, Operation
from sonda.record.errors import SondaError

BY_WEIGHTS, BY_INPUTS = "weights by rows", "inputs by rows"
"""What a mapping says under `rows`: the operand that is compressed. Of embedding bags it says nothing."""


class CompressedRow(Engine):
    """Rows of a compressed operand, one after the other, times a dense one."""

    operations = OPERATIONS
    zeros_matter = True
    moves_memory = True
    controller = "MAGMA_SPARSE_DENSE"
    product_tile = ("T_N", "T_K")

    def problems(self, description: EngineDescription, wrong: set[str]) -> Iterator[SondaError]:
        """Accumulators behind a tree of adders, and a tile that uses it."""
        hardware = description.hardware
        yield from wrong_reduction(description, wrong)
        if "accumulators" not in wrong and not hardware.accumulators:
            yield SondaError("accumulators = false cannot sum the pieces of a row", "set it to true or leave it out")
        if "multipliers" not in wrong and hardware.multipliers < 2:
            yield SondaError("multipliers = 1 leaves ASNETWORK without an adder", "give at least 2")
        yield from wrong_line_tiles(description, wrong, pairs=True)

    def simulate(self, description: EngineDescription, operation: Operation, mapping: Mapping[str, Any]) -> Result:
        """All products, those with rows alike once."""
        way = next(way for way in _ways(operation) if way.words.get("rows") == mapping.get("rows"))
        return way.simulate(description.hardware, RowTile(mapping["T_N"], mapping["T_K"]))

    def choose_mapping(self, description: EngineDescription, operation: Operation, given: bool) -> dict[str, Any]:
        """The operand with more zeros by rows, under the description's tile or STONNE's."""
        way = _ways(operation)[0]
        return way.mapping(_ruled_tile(description, way, given))

    def mappings(self, description: EngineDescription, operation: Operation) -> MappingSpace:
        """All tiles of both operands."""
        ways = _ways(operation)
        tiles = dict.fromkeys(_ruled_tile(description, ways[0], given) for given in (False, True))
        return MappingSpace(
            [_options(description.hardware, ways[0], tile) for tile in tiles],
            [_options(description.hardware, way) for way in ways],
        )

    def choose_many(
        self, description: EngineDescription, operations: Sequence[Operation], given: bool
    ) -> dict[Operation, Choice]:
        """Embedding bags under one tile share what their rows take."""
        bags = [operation for operation in operations if isinstance(operation.shape, Bags)]
        chosen: dict[Operation, Choice] = {}
        for tile, places, products in _group_by_tile(description, bags, given):
            results = compressed_row.simulate_all(description.hardware, products, tile)
            for place, result in zip(places, results, strict=True):
                chosen[bags[place]] = Choice({"T_N": tile.columns, "T_K": tile.entries}, result)
        return chosen

    def batch(self, operations: Sequence[Operation]) -> BagBatch | None:
        """Embedding bags, where there is nothing else."""
        return BagBatch(operations) if all(isinstance(operation.shape, Bags) for operation in operations) else None

    def useful_products(self, operation: Operation, mapping: Mapping[str, Any], result: Result) -> int:
        """Entries of the compressed operand times the vectors of the other."""
        if isinstance(operation.shape, Bags):
            return operation.shape.multiplications
        return products_of_entries(operation, mapping["rows"] == BY_WEIGHTS)

    def reuse(
        self,
        description: EngineDescription,
        shape: MatrixProduct | ConvolutionShape | Bags,
        mapping: Mapping[str, Any],
        counted: Result | Accesses,
        operation: Operation | None,
    ) -> Reuse:
        """The compressed operand is read once; every row takes what it names of the other, which is whole, zeros and
        all."""
        if isinstance(shape, Bags):
            table = TableRows(_lookups(shape), mapping["T_N"])
            outputs = len(shape.sizes) * shape.columns
            return Reuse((Operand(counted.weight_reads),), outputs, 1 + shape.columns, mapping["T_N"], table=table)
        sizes = ProductSizes.from_shape(shape, operation)
        full = sizes.m * sizes.k * sizes.products if sizes.image is None else distinct_inputs(sizes.image)
        by_weights = mapping["rows"] == BY_WEIGHTS
        rows, dense = (sizes.weights, full) if by_weights else (sizes.inputs, sizes.n * sizes.k * sizes.products)
        operands = (
            reread_operand(counted.weight_reads, rows, (sizes.share_of_one(rows), rows)),
            reread_operand(counted.input_reads, dense, (sizes.share_of_one(dense), dense)),
        )
        return Reuse(operands, sizes.outputs, mapping["T_K"] * (1 + mapping["T_N"]), mapping["T_N"])


class BagBatch:
    """Embedding bags, those under one tile at once."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self._operations = operations

    def on(self, engines: Sequence[EngineDescription], given: bool) -> Iterator[tuple[list[int], list[Taken]]]:
        """Each engine with all bags, under the given tile or STONNE's."""
        for number, engine in enumerate(engines):
            with suppress(SondaError):
                yield [number], self._simulate_bags(engine, given)

    def best_on(self, engines: Sequence[EngineDescription]) -> Iterator[tuple[list[int], list[Taken]]]:
        """None: tiles are searched one operation at a time."""
        yield from ()

    def _simulate_bags(self, engine: EngineDescription, given: bool) -> list[Taken]:
        taken = []
        for tile, places, products in _group_by_tile(engine, self._operations, given):
            result = compressed_row.simulate_together(engine.hardware, products, tile)
            mappings = [{"T_N": tile.columns, "T_K": tile.entries}] * len(places)
            taken.append(Taken(places, result, np.ones(len(places), np.int64), mappings.__getitem__))
        return taken


@dataclass(frozen=True)
class _Way:
    """An operand by rows, times the other."""

    products: list[RowsByDense]
    length: int
    """Columns of the compressed matrix."""
    words: dict[str, str]

    def mapping(self, tile: RowTile) -> dict[str, Any]:
        return {"T_N": tile.columns, "T_K": tile.entries} | self.words

    def simulate(self, hardware: Hardware, tile: RowTile) -> Result:
        alike = self.alike()
        results = compressed_row.simulate_all(hardware, [product for product, _ in alike], tile)
        return sum_results([repeat_result(result, count) for result, (_, count) in zip(results, alike, strict=True)])

    def alike(self) -> list[tuple[RowsByDense, int]]:
        """Products and how often each is there: only the entries per row count."""
        groups: dict[bytes, list[RowsByDense]] = {}
        for product in self.products:
            groups.setdefault(product.entries.tobytes(), []).append(product)
        return [(products[0], len(products)) for products in groups.values()]

    @cached_property
    def sparsity(self) -> float:
        held = sum(int(product.entries.sum()) for product in self.products)
        return min(1.0, max(0.0, 1 - held / (sum(len(product.entries) for product in self.products) * self.length)))


_WAYS: WeakKeyDictionary[Operation | Bags, list[_Way]] = WeakKeyDictionary()
"""Ways of operations that are still in use, made ready once for all designs of an engine."""


def _ways(operation: Operation) -> list[_Way]:
    """The operands that may be compressed, the one with more zeros first."""
    key = operation.shape if isinstance(operation.shape, Bags) else operation
    if key not in _WAYS:
        _WAYS[key] = _ways_of_bags(key) if isinstance(key, Bags) else _ways_of_products(key)
    return _WAYS[key]


def _ways_of_bags(bags: Bags) -> list[_Way]:
    return [_Way([RowsByDense(bags.sizes.astype(np.int64), bags.columns)], bags.rows, {})]


def _ways_of_products(operation: Operation) -> list[_Way]:
    inputs, weights = matrices_of(operation)
    ways = [
        _Way(
            [RowsByDense(np.count_nonzero(matrix, axis=1).astype(np.int64), dense.shape[1]) for matrix in rows],
            rows.shape[2],
            {"rows": word},
        )
        for rows, dense, word in ((weights, inputs, BY_WEIGHTS), (inputs, weights, BY_INPUTS))
    ]
    if np.count_nonzero(weights) * inputs.size > np.count_nonzero(inputs) * weights.size:
        ways.reverse()
    return ways


def _ruled_tile(description: EngineDescription, way: _Way, given: bool) -> RowTile:
    dense = way.products[0].columns
    if given and description.tile:
        return RowTile(min(description.tile["T_N"], dense), description.tile["T_K"])
    return rows_tile(description.hardware, dense, way.length, way.sparsity)


def _group_by_tile(
    description: EngineDescription, operations: Sequence[Operation], given: bool
) -> Iterator[tuple[RowTile, list[int], list[RowsByDense]]]:
    ways = [_ways(operation)[0] for operation in operations]
    places_of: dict[RowTile, list[int]] = {}
    for place, way in enumerate(ways):
        places_of.setdefault(_ruled_tile(description, way, given), []).append(place)
    for tile, places in places_of.items():
        yield tile, places, [ways[place].products[0] for place in places]


@lru_cache(maxsize=1 << 12)
def _row_times(hardware: Hardware, tile: RowTile) -> RowTimes:
    """What rows take under a tile; it learns, so operations share it."""
    return RowTimes(hardware, tile)


def _options(hardware: Hardware, way: _Way, given: RowTile | None = None) -> FormMappings:
    """All tiles that a search looks at; or one."""
    dense = way.products[0].columns
    if given is None:
        largest = (min(dense, hardware.multipliers // 2), hardware.multipliers)
        tiles = combinations(hardware.multipliers, (dense, way.length), largest)
        tiles = tiles[tiles[:, 1] > 1]
    else:
        tiles = np.array([[given.columns, given.entries]], np.int64)
    columns, summed = tiles[:, 0], tiles[:, 1]
    # Products follow each other, and rows too: all rows of all products are like those of one.
    entries = np.concatenate([product.entries for product in way.products])
    stored = int(np.maximum(entries, 1).sum())

    def tile(number: int) -> RowTile:
        return RowTile(*tiles[number].tolist())

    alike = way.alike()

    def cycles(number: int) -> int:
        rows = _row_times(hardware, tile(number))
        return sum(count * rows.cycles(product) for product, count in alike)

    return FormMappings(
        least=UNBOUNDED if given else least_cycles.row_tile_cycles(hardware, entries, dense, columns, summed),
        simulate=lambda number: Choice(way.mapping(tile(number)), way.simulate(hardware, tile(number))),
        mapping={"T_N": columns, "T_K": summed} | way.words,
        # What is read does not depend on the tile.
        accesses=Accesses(stored, stored * dense, 0, len(entries) * dense),
        cycles=cycles,
    )


def _lookups(bags: Bags) -> RowStream:
    """Every index of a bag counts, and a bag's rows are needed together."""
    return remembered_stream(
        bags,
        ("compressed_row",),
        lambda: RowStream(bags.indices.astype(np.int64), np.repeat(bags.sizes, bags.sizes).astype(np.int64)),
    )
