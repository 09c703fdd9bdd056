"""The mesh as a kind of engine: every processing element sums one output while rows and columns pass by."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sonda.accelerators.description.engine import EngineDescription
from sonda.accelerators.engines import mesh
from sonda.accelerators.engines.contract import Engine
from sonda.accelerators.engines.kinds.dense import dense_product, dense_shape
from sonda.accelerators.engines.result import Result, repeat_result
from sonda.accelerators.mapping import buffer_reads, candidate_tiles, least_cycles
from sonda.accelerators.mapping.rules import mesh_tile
from sonda.accelerators.mapping.search import Choice, FormMappings, MappingSpace, Taken
from sonda.accelerators.memory.reuse import Accesses, ProductSizes, Reuse, reread_operand
from sonda.accelerators.operations.program import Bags, ConvolutionShape, MatrixProduct, Operation
from sonda.record.errors import SondaError

Whole = NDArray[np.int64]


class Mesh(Engine):
    """Output-stationary, as STONNE's TPU."""

    moves_memory = True
    has_mesh = True
    reduction = "TEMPORALRN"
    controller = "TPU_OS_DENSE"
    product_tile = ("T_M", "T_N")

    def problems(self, description: EngineDescription, wrong: set[str]) -> Iterator[SondaError]:
        """Sums that stay in the elements, ports that share the sides, a tile within the sides."""
        hardware = description.hardware
        if wrong.isdisjoint({"reduction", "accumulators"}) and (
            hardware.reduction != "TEMPORALRN" or not hardware.accumulators
        ):
            yield SondaError(
                f"reduction = {hardware.reduction!r} with accumulators = {hardware.accumulators} cannot sum on a mesh",
                "leave both out",
            )
        if wrong.isdisjoint({"rows", "columns", "read_ports"}):
            try:
                hardware.check_mesh_ports()
            except SondaError as error:
                yield error
        if wrong.isdisjoint({"rows", "columns", "write_ports", "multipliers"}):
            per_line = hardware.multipliers // hardware.write_ports + 1
            if -(-description.elements // hardware.write_ports) > per_line:
                yield SondaError(
                    f"multipliers = {hardware.multipliers} is too few for {description.elements} processing elements",
                    "leave it out",
                )
        for letter, side in (("T_M", "rows"), ("T_N", "columns")) if description.tile else ():
            given, size = description.tile[letter], getattr(hardware, side)
            if side not in wrong and given > size:
                yield SondaError(f"tile.{letter} = {given} is more than the mesh's {size}", "change it")

    def simulate(self, description: EngineDescription, operation: Operation, mapping: Mapping[str, Any]) -> Result:
        """A convolution is taken as a product of matrices."""
        return _simulate(description, dense_product(description.kind, operation.shape), mapping["T_M"], mapping["T_N"])

    def choose_mapping(self, description: EngineDescription, operation: Operation, given: bool) -> dict[str, Any]:
        """As much of the mesh, or of the given tile, as the product has rows and columns."""
        shape = dense_product(description.kind, operation.shape)
        tile = _ruled_tile(description, shape, given)
        return {"T_M": tile.rows, "T_N": tile.columns}

    def mappings(self, description: EngineDescription, operation: Operation) -> MappingSpace:
        """The whole mesh, the given tile, and all others."""
        shape = dense_product(description.kind, operation.shape)
        whole, given = (_ruled_tile(description, shape, wanted) for wanted in (False, True))
        largest = (whole.rows, whole.columns)
        tiles = candidate_tiles.combinations(math.prod(largest), (shape.m, shape.n), largest)
        product = mesh.Product(shape.m, shape.n, shape.k)
        least = shape.count * least_cycles.mesh_tile_cycles(description.hardware, product, *tiles.T)
        starts = np.array([(tile.rows, tile.columns) for tile in dict.fromkeys((whole, given))], np.int64)
        return MappingSpace(
            [_options(description, shape, starts, np.zeros(len(starts), np.int64))],
            [_options(description, shape, tiles, least)],
        )

    def batch(self, operations: Sequence[Operation]) -> MeshBatch:
        """All products as one array."""
        return MeshBatch(operations)

    def useful_products(self, operation: Operation, mapping: Mapping[str, Any], result: Result) -> int:
        """All of the operation's: zeros are fetched like any other element."""
        return operation.shape.multiplications

    def reuse(
        self,
        description: EngineDescription,
        shape: MatrixProduct | ConvolutionShape | Bags,
        mapping: Mapping[str, Any],
        counted: Result | Accesses,
        operation: Operation | None,
    ) -> Reuse:
        """Tiles of T_M rows outside, all columns for each: weights come again for every T_M rows, and the inputs of
        these rows for every T_N columns."""
        sizes = ProductSizes.from_shape(dense_shape(description.kind, shape), None)
        rows, columns = mapping["T_M"], mapping["T_N"]
        operands = (
            reread_operand(counted.weight_reads, sizes.weights, (sizes.share_of_one(sizes.weights), sizes.weights)),
            reread_operand(
                counted.input_reads,
                sizes.inputs,
                (rows * sizes.k, sizes.m * sizes.k * sizes.products),
                (sizes.lines(rows), sizes.inputs),
            ),
        )
        return Reuse(operands, sizes.outputs, rows + columns, rows * columns)


class MeshBatch:
    """Operations as products of matrices, each mesh with all of them at once."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        products = [dense_product("mesh", operation.shape) for operation in operations]
        self._sizes = np.array([(product.m, product.n, product.k) for product in products], np.int64)
        self._count = np.array([product.count for product in products], np.int64)

    def on(self, engines: Sequence[EngineDescription], given: bool) -> Iterator[tuple[list[int], list[Taken]]]:
        """Each mesh with all operations, under the given tile or filled."""
        for number, engine in enumerate(engines):
            with suppress(SondaError):
                yield [number], [self._simulate_products(engine, given)]

    def best_on(self, engines: Sequence[EngineDescription]) -> Iterator[tuple[list[int], list[Taken]]]:
        """None: tiles of a mesh are searched one operation at a time."""
        yield from ()

    def _simulate_products(self, engine: EngineDescription, given: bool) -> Taken:
        tile = engine.tile if given and engine.tile else {"T_M": engine.hardware.rows, "T_N": engine.hardware.columns}
        tiles = np.minimum((tile["T_M"], tile["T_N"]), self._sizes[:, :2])
        return Taken(
            range(len(self._count)),
            mesh.simulate_all(engine.hardware, self._sizes, tiles),
            self._count,
            lambda place: dict(zip(("T_M", "T_N"), tiles[place].tolist(), strict=True)),
        )


def _ruled_tile(description: EngineDescription, shape: MatrixProduct, given: bool) -> mesh.MeshTile:
    tile = description.tile
    if given and tile:
        return mesh.MeshTile(min(tile["T_M"], shape.m), min(tile["T_N"], shape.n))
    return mesh_tile(description.hardware, shape.m, shape.n)


def _simulate(description: EngineDescription, shape: MatrixProduct, rows: int, columns: int) -> Result:
    product = mesh.Product(shape.m, shape.n, shape.k)
    return repeat_result(mesh.simulate(description.hardware, product, mesh.MeshTile(rows, columns)), shape.count)


def _options(description: EngineDescription, shape: MatrixProduct, tiles: Whole, least: Whole) -> FormMappings:
    rows, columns = tiles.T

    def simulate(number: int) -> Choice:
        high, wide = tiles[number].tolist()
        return Choice({"T_M": high, "T_N": wide}, _simulate(description, shape, high, wide))

    accesses = buffer_reads.mesh_tile_accesses(mesh.Product(shape.m, shape.n, shape.k), rows, columns)
    return FormMappings(
        least=least,
        simulate=simulate,
        mapping={"T_M": rows, "T_N": columns},
        accesses=buffer_reads.scale_accesses(accesses, shape.count),
    )
