"""Placement: which engine takes which operation of a program, under which mapping, and what it takes there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sonda.accelerators import mapping as maps
from sonda.accelerators.description import Accelerator
from sonda.accelerators.engine_description import EngineDescription
from sonda.accelerators.engines import bitmap_sparse, compressed_row, flexible_dense, gustavson, mesh, outer_product
from sonda.accelerators.engines.sparse_product import SparseProduct
from sonda.accelerators.layer import Layer
from sonda.accelerators.operands import CompressedRows, compressed_rows
from sonda.accelerators.operation import Bags, Convolution, MatrixProduct, Operation, Program
from sonda.accelerators.result import Result
from sonda.record.errors import SondaError

SPARSE = ("bitmap_sparse", "compressed_row", "outer_product", "gustavson")
"""Kinds of engine whose time depends on where operands are zero."""
STATIONARY_ROWS, STATIONARY_COLUMNS = bitmap_sparse.DATAFLOWS
MOST_PATTERN = 1 << 31
"""Elements of an operand that is unpacked to be looked at."""


@dataclass(frozen=True)
class Placed:
    """An operation on an engine. Where it has several products, they follow each other and are added up."""

    operation: Operation
    engine: EngineDescription
    mapping: dict[str, Any]
    """What was chosen: sizes of the tile, the dataflow, which operand is compressed."""
    result: Result

    @property
    def words(self) -> str:
        """The mapping in a few words: `T_M=1 T_N=64 T_K=4`; of a convolution's tile, the sizes that are not 1."""
        long = len(self.mapping) > len(maps.PRODUCT_LETTERS) + 1
        shown = {name: value for name, value in self.mapping.items() if value != 1 or not long}
        return " ".join(f"{name}={value}" if name.startswith("T_") else str(value) for name, value in shown.items())


@dataclass(frozen=True)
class OnHost:
    """An operation that no engine takes, and why."""

    operation: Operation
    reason: str


@dataclass
class Placement:
    """Engines for the operations of programs; what only shapes decide is computed once."""

    accelerator: Accelerator
    _known: dict[Any, tuple[dict[str, Any], Result]] = field(default_factory=dict)

    def patterns(self) -> frozenset[str]:
        """Kinds of operation whose zeros must be known. Those of embedding bags always are."""
        found = {kind: self.accelerator.engine_for(kind) for kind in self.accelerator.route}
        return frozenset(
            kind for kind, engine in found.items() if engine and engine.kind in SPARSE and kind != "embedding_bag"
        )

    def place(self, program: Program) -> list[Placed | OnHost]:
        """Every operation in its order. Raises SondaError naming the layer that its engine cannot run."""
        return [self.place_one(operation, program.path(operation)) for operation in program.operations]

    def place_one(self, operation: Operation, path: str = "") -> Placed | OnHost:
        """One operation; `path` is where it stands, for errors."""
        engine = self.accelerator.engine_for(operation.kind)
        if engine is None:
            return OnHost(operation, f"{self.accelerator.name} has no engine for {operation.kind}")
        try:
            chosen, result = self._simulate(operation, engine)
        except SondaError as error:
            where = f"{path or 'the model'} ({operation.name}) on {engine.name}"
            raise SondaError(f"{where}: {error.cause}", error.remedy) from None
        return Placed(operation, engine, chosen, result)

    def _simulate(self, operation: Operation, engine: EngineDescription) -> tuple[dict[str, Any], Result]:
        shape = operation.shape
        if engine.kind in SPARSE:
            if isinstance(shape, Bags):
                return _bags(engine, shape)
            return _sparse(engine, operation)
        key = (engine.name, shape)
        if key not in self._known:
            self._known[key] = _dense(engine, shape)
        return self._known[key]


def total(results: list[Result]) -> Result:
    """Results one after the other, as one."""
    first = results[0]
    if len(results) == 1:
        return first
    return Result(
        cycles=sum(one.cycles for one in results),
        weight_reads=sum(one.weight_reads for one in results),
        input_reads=sum(one.input_reads for one in results),
        psum_reads=sum(one.psum_reads for one in results),
        writes=sum(one.writes for one in results),
        multiplications=sum(one.multiplications for one in results),
        counters=_added([one.counters for one in results]),
        stack={part: sum(one.stack.get(part, 0) for one in results) for part in first.stack},
    )


def times(result: Result, count: int) -> Result:
    """The same operation so many times, one after the other."""
    if count == 1:
        return result
    counters = {
        section: {
            component: {name: value if name == "entries" else count * value for name, value in counts.items()}
            for component, counts in components.items()
        }
        for section, components in result.counters.items()
    }
    return Result(
        cycles=count * result.cycles,
        weight_reads=count * result.weight_reads,
        input_reads=count * result.input_reads,
        psum_reads=count * result.psum_reads,
        writes=count * result.writes,
        multiplications=count * result.multiplications,
        counters=counters,
        stack={part: count * cycles for part, cycles in result.stack.items()},
    )


def _added(all_counters: list[Any]) -> Any:
    """Counters summed; the instances of a component are the same hardware each time."""
    sums: dict[str, dict[str, dict[str, int]]] = {}
    for counters in all_counters:
        for section, components in counters.items():
            for component, counts in components.items():
                into = sums.setdefault(section, {}).setdefault(component, {})
                for name, value in counts.items():
                    into[name] = value if name == "entries" else into.get(name, 0) + value
    return sums


# ---- dense engines: only shapes count ----------------------------------------------------------------------------


def _dense(engine: EngineDescription, shape: MatrixProduct | Convolution | Bags) -> tuple[dict[str, Any], Result]:
    if isinstance(shape, Bags):
        raise SondaError(f"{engine.kind} cannot sum the rows of a bag", "route embedding_bag to a sparse engine")
    if isinstance(shape, Convolution):
        layer = shape.layer() if engine.kind == "flexible_dense" else None
        if layer is not None:
            return _direct(engine, layer)
        shape = shape.product()
    if engine.kind == "mesh":
        return _on_mesh(engine, shape)
    layer = Layer.product(shape.m, shape.n, shape.k)
    given = engine.tile
    tile = maps.tile_of(given, layer) if given else maps.product_tile(engine.hardware, layer, shape.m, shape.n, shape.k)
    result = flexible_dense.simulate(engine.hardware, layer, tile)
    return maps.tile_words(tile, product=True), times(result, shape.count)


def _direct(engine: EngineDescription, layer: Layer) -> tuple[dict[str, Any], Result]:
    given = engine.convolution_tile
    tile = maps.tile_of(given, layer) if given else maps.convolution_tile(engine.hardware, layer.check())
    return maps.tile_words(tile, product=False), flexible_dense.simulate(engine.hardware, layer, tile)


def _on_mesh(engine: EngineDescription, shape: MatrixProduct) -> tuple[dict[str, Any], Result]:
    tile = maps.mesh_tile(engine.hardware, shape.m, shape.n)
    if engine.tile:
        tile = mesh.MeshTile(min(engine.tile["T_M"], shape.m), min(engine.tile["T_N"], shape.n))
    result = mesh.simulate(engine.hardware, mesh.Product(shape.m, shape.n, shape.k), tile)
    return {"T_M": tile.rows, "T_N": tile.columns}, times(result, shape.count)


# ---- sparse engines: where operands are zero counts --------------------------------------------------------------


def _sparse(engine: EngineDescription, operation: Operation) -> tuple[dict[str, Any], Result]:
    inputs, weights = _matrices(operation)
    results = []
    chosen: dict[str, Any] = {}
    for left, right in zip(inputs, weights, strict=True):
        chosen, result = _one_sparse(engine, operation, left, right)
        results.append(result)
    return chosen, total(results)


def _one_sparse(
    engine: EngineDescription, operation: Operation, inputs: np.ndarray, weights: np.ndarray
) -> tuple[dict[str, Any], Result]:
    """Inputs m x k by weights n x k, both as booleans."""
    hardware = engine.hardware
    if engine.kind == "bitmap_sparse":
        # As STONNE's front end: a convolution's filters are the first matrix, other weights the second; both stay.
        filters_first = operation.kind == "convolution"
        default = STATIONARY_ROWS if filters_first else STATIONARY_COLUMNS
        dataflow = engine.dataflow.get(operation.kind, default)
        first, second = (_widened(one) for one in ((weights, inputs) if filters_first else (inputs, weights)))
        product = bitmap_sparse.bitmap_product(first, second.T, dataflow)
        return {"dataflow": dataflow}, bitmap_sparse.simulate(hardware, product)
    if engine.kind == "compressed_row":
        by_weights = np.count_nonzero(weights) * inputs.size <= np.count_nonzero(inputs) * weights.size
        rows, dense = (weights, inputs) if by_weights else (inputs, weights)
        sizes = np.count_nonzero(rows, axis=1).astype(np.int64)
        tile = _rows_tile(engine, len(dense), rows.shape[1], 1 - sizes.sum() / rows.size)
        by_dense = compressed_row.RowsByDense(sizes, len(dense))
        chosen = {"rows": "weights by rows" if by_weights else "inputs by rows"}
        return _row_words(tile) | chosen, compressed_row.simulate(hardware, by_dense, tile)
    merging = outer_product if engine.kind == "outer_product" else gustavson
    return {}, merging.simulate(hardware, SparseProduct(compressed_rows(inputs), compressed_rows(weights.T)))


def _bags(engine: EngineDescription, bags: Bags) -> tuple[dict[str, Any], Result]:
    """The matrix of ones and zeros by the table; only the rows that are looked up count, however many there are."""
    hardware = engine.hardware
    if engine.kind == "compressed_row":
        sparsity = 1 - len(bags.indices) / (len(bags.sizes) * bags.rows)
        tile = _rows_tile(engine, bags.columns, bags.rows, max(0.0, sparsity))
        by_table = compressed_row.RowsByDense(bags.sizes.astype(np.int64), bags.columns)
        return _row_words(tile), compressed_row.simulate(hardware, by_table, tile)
    rows = bags.distinct
    if engine.kind == "bitmap_sparse":
        dataflow = engine.dataflow.get("embedding_bag", STATIONARY_ROWS)
        rows = _filled(rows)
        product = bitmap_sparse.BitmapProduct(rows, bags.columns)
        if dataflow == STATIONARY_COLUMNS:
            before = np.concatenate(([0], np.cumsum(np.bincount(rows.indices, minlength=rows.columns))))
            table = bitmap_sparse.DenseRows(bags.columns, rows.columns)
            product = bitmap_sparse.BitmapProduct(table, rows.rows, before)
        return {"dataflow": dataflow}, bitmap_sparse.simulate(hardware, product)
    merging = outer_product if engine.kind == "outer_product" else gustavson
    used, place = np.unique(rows.indices, return_inverse=True)
    wanted = CompressedRows(len(used), rows.pointer, place.astype(np.int64))
    full = np.ones((len(used), bags.columns), dtype=bool)
    return {}, merging.simulate(hardware, SparseProduct(wanted, compressed_rows(full)))


def _rows_tile(engine: EngineDescription, n: int, k: int, sparsity: float) -> compressed_row.RowTile:
    if engine.tile:
        return compressed_row.RowTile(min(engine.tile["T_N"], n), engine.tile["T_K"])
    return maps.rows_tile(engine.hardware, n, k, min(1.0, max(0.0, float(sparsity))))


def _row_words(tile: compressed_row.RowTile) -> dict[str, Any]:
    return {"T_N": tile.columns, "T_K": tile.entries}


def _filled(rows: CompressedRows) -> CompressedRows:
    """Rows with fewer than three entries get explicit zeros at the first of their columns 0 to 2 that are free."""
    fewest = bitmap_sparse.FEWEST
    short = np.flatnonzero(rows.row_sizes() < fewest)
    if not len(short):
        return rows
    parts = np.split(rows.indices, rows.pointer[1:-1])
    for row in short:
        free = [column for column in range(fewest) if column not in parts[row]]
        parts[row] = np.sort(np.append(parts[row], free[: fewest - len(parts[row])]).astype(np.int64))
    sizes = np.array([len(part) for part in parts], np.int64)
    pointer = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))
    return CompressedRows(max(rows.columns, fewest), pointer, np.concatenate(parts))


def _widened(matrix: np.ndarray) -> np.ndarray:
    """The matrix with explicit zeros up to the three columns that a bitmap engine needs."""
    missing = max(0, bitmap_sparse.FEWEST - matrix.shape[1])
    return np.pad(matrix, ((0, 0), (0, missing))) if missing else matrix


def _matrices(operation: Operation) -> tuple[np.ndarray, np.ndarray]:
    """Patterns of the inputs (count x m x k) and of the weights (count x n x k) as booleans."""
    if operation.inputs is None or operation.weights is None:
        raise SondaError(f"the zeros of {operation.name} are not known", "capture the model with its values")
    shape = operation.shape
    inputs, weights = operation.inputs.bits(), operation.weights.bits()
    if not isinstance(shape, Convolution):
        return inputs, weights
    product = shape.product()
    if product.m * product.k * product.count > MOST_PATTERN:
        raise SondaError(
            f"the convolution has {product.m * product.k * product.count} operands as a matrix product, more than "
            f"{MOST_PATTERN}",
            "use a smaller --batch or image",
        )
    return _unfolded(inputs, shape), weights.reshape(product.count, product.n, product.k)


def _unfolded(inputs: np.ndarray, shape: Convolution) -> np.ndarray:
    """Groups x windows x taps of an N x C x X x Y pattern; a tap on the padding is zero."""
    (top, left), (high, wide) = shape.padding, shape.dilation
    padded = np.pad(inputs, ((0, 0), (0, 0), (top, top), (left, left)))
    reach = (high * (shape.R - 1) + 1, wide * (shape.S - 1) + 1)
    windows = np.lib.stride_tricks.sliding_window_view(padded, reach, axis=(2, 3))
    windows = windows[:, :, :: shape.stride[0], :: shape.stride[1], ::high, ::wide]
    grouped = windows.reshape(shape.N, shape.G, shape.C // shape.G, *windows.shape[2:])
    product = shape.product()
    return grouped.transpose(1, 0, 3, 4, 2, 5, 6).reshape(product.count, product.m, product.k)
