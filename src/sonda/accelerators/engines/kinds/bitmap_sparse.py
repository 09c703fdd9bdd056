"""The bitmap engine (SIGMA) as a kind: which operand stays, and what it reads again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from sonda.accelerators.description.engine import OPERATIONS, EngineDescription
from sonda.accelerators.description.hardware import DATAFLOWS
from sonda.accelerators.engines import bitmap_sparse
from sonda.accelerators.engines.bitmap_sparse import BitmapProduct, DenseRows
from sonda.accelerators.engines.contract import Engine
from sonda.accelerators.engines.kinds.limits import wrong_reduction, wrong_tree
from sonda.accelerators.engines.result import Result, sum_results
from sonda.accelerators.mapping import least_cycles
from sonda.accelerators.mapping.search import UNBOUNDED, Choice, FormMappings, MappingSpace
from sonda.accelerators.memory.lookups import RowStream, remembered_stream
from sonda.accelerators.memory.reuse import (
    Accesses,
    Operand,
    ProductSizes,
    Reuse,
    TableRows,
    partial_sums,
    reread_operand,
    rereading,
)
from sonda.accelerators.operations.matrices import matrices_of, products_of_entries
from sonda.accelerators.operations.patterns import CompressedRows, pointer_of
from sonda.accelerators.operations.program import Bags, ConvolutionShape, MatrixProduct, Operation
from sonda.record.errors import SondaError

STATIONARY_ROWS, STATIONARY_COLUMNS = DATAFLOWS


class BitmapSparse(Engine):
    """Ones of one operand stay in the multipliers while vectors of the other stream past them."""

    operations = OPERATIONS
    zeros_matter = True
    moves_memory = True
    accumulators = False
    controller = "SIGMA_SPARSE_GEMM"
    dataflows = DATAFLOWS

    def problems(self, description: EngineDescription, wrong: set[str]) -> Iterator[SondaError]:
        """A tree that sums vectors of any length."""
        yield from wrong_reduction(description, wrong)
        yield from wrong_tree(description, wrong)

    def simulate(self, description: EngineDescription, operation: Operation, mapping: Mapping[str, Any]) -> Result:
        """All products, one after the other."""
        products = _ways(operation)[mapping["dataflow"]].products()
        return sum_results([bitmap_sparse.simulate(description.hardware, product) for product in products])

    def choose_mapping(self, description: EngineDescription, operation: Operation, given: bool) -> dict[str, Any]:
        """The dataflow that is given, or that of STONNE's front end: a convolution's filters are the first matrix,
        other weights the second, and both stay. Of bags the indices stay, so that cycles do not grow with the rows of
        the table."""
        rows_stay = isinstance(operation.shape, Bags) or operation.kind == "convolution"
        usual = STATIONARY_ROWS if rows_stay else STATIONARY_COLUMNS
        return {"dataflow": description.dataflow.get(operation.kind, usual) if given else usual}

    def mappings(self, description: EngineDescription, operation: Operation) -> MappingSpace:
        """The chosen dataflow and the other. What they read and write depends on the zeros of both operands."""
        chosen = self.choose_mapping(description, operation, True)
        ways = _ways(operation)
        (second_dataflow,) = (dataflow for dataflow in ways if dataflow != chosen["dataflow"])
        held = ways[second_dataflow].held()
        least = sum(least_cycles.bitmap_cycles(description.hardware, *product) for product in held)

        def simulate_under(dataflow: str) -> Callable[[int], Choice]:
            mapping = {"dataflow": dataflow}
            return lambda number: Choice(mapping, self.simulate(description, operation, mapping))

        return MappingSpace(
            [FormMappings(UNBOUNDED, simulate_under(chosen["dataflow"]))],
            [FormMappings(np.array([least], np.int64), simulate_under(second_dataflow))],
        )

    def useful_products(self, operation: Operation, mapping: Mapping[str, Any], result: Result) -> int:
        """Entries of the operand that stays times the vectors of the other; of bags every distinct index, or the
        whole table."""
        rows_stay, bags = mapping["dataflow"] == STATIONARY_ROWS, operation.shape
        if not isinstance(bags, Bags):
            return products_of_entries(operation, rows_stay == (operation.kind == "convolution"))
        if rows_stay:
            return len(bags.distinct.indices) * bags.columns
        return bags.columns * bags.distinct.columns * (len(bags.distinct.pointer) - 1)

    def reuse(
        self,
        description: EngineDescription,
        shape: MatrixProduct | ConvolutionShape | Bags,
        mapping: Mapping[str, Any],
        counted: Result | Accesses,
        operation: Operation | None,
    ) -> Reuse:
        """What stays in the multipliers is read once, the other matrix again for every filling of them. Sums of a
        vector that is too long for them wait for its next piece, one for each vector that streams."""
        if isinstance(shape, Bags):
            return _reuse_of_bags(description, shape, mapping, counted)
        sizes = ProductSizes.from_shape(shape, operation)
        filters_first = operation.kind == "convolution" if operation else isinstance(shape, ConvolutionShape)
        weights_stay = filters_first == (mapping["dataflow"] == STATIONARY_ROWS)
        stays, streams = (sizes.weights, sizes.inputs) if weights_stay else (sizes.inputs, sizes.weights)
        vectors = sizes.m if weights_stay else sizes.n
        operands = (
            reread_operand(counted.weight_reads, stays, (sizes.share_of_one(stays), stays)),
            reread_operand(counted.input_reads, streams, (sizes.share_of_one(streams), streams)),
            partial_sums(counted.psum_reads, np.maximum(0, counted.writes - sizes.outputs), vectors),
        )
        multipliers = description.hardware.multipliers
        return Reuse(operands, np.minimum(sizes.outputs, counted.writes), multipliers + sizes.k, multipliers)


class _StationaryOperand(NamedTuple):
    """One dataflow of an operation."""

    held: Callable[[], list[tuple[int, int]]]
    """Per product: ones of the operand that stays, and vectors that stream past it."""
    products: Callable[[], list[BitmapProduct]]


def _ways(operation: Operation) -> dict[str, _StationaryOperand]:
    shape = operation.shape
    return _ways_of_bags(shape) if isinstance(shape, Bags) else _ways_of_products(operation)


def _ways_of_products(operation: Operation) -> dict[str, _StationaryOperand]:
    inputs, weights = matrices_of(operation)
    pairs = [(_widen_matrix(left), _widen_matrix(right)) for left, right in zip(inputs, weights, strict=True)]
    if operation.kind == "convolution":
        pairs = [(right, left) for left, right in pairs]
    return {
        STATIONARY_ROWS: _StationaryOperand(
            lambda: [(int(np.count_nonzero(left)), len(right)) for left, right in pairs],
            lambda: [bitmap_sparse.bitmap_product(left, right.T, STATIONARY_ROWS) for left, right in pairs],
        ),
        STATIONARY_COLUMNS: _StationaryOperand(
            lambda: [(int(np.count_nonzero(right)), len(left)) for left, right in pairs],
            lambda: [bitmap_sparse.bitmap_product(left, right.T, STATIONARY_COLUMNS) for left, right in pairs],
        ),
    }


def _ways_of_bags(bags: Bags) -> dict[str, _StationaryOperand]:
    """The matrix of ones and zeros by the table; nothing is allocated for the table."""
    rows = _fill_short_rows(bags.distinct)

    def table_stays() -> list[BitmapProduct]:
        before = np.concatenate(([0], np.cumsum(np.bincount(rows.indices, minlength=rows.columns))))
        return [BitmapProduct(DenseRows(bags.columns, rows.columns), rows.rows, before)]

    return {
        STATIONARY_ROWS: _StationaryOperand(
            lambda: [(len(rows.indices), bags.columns)], lambda: [BitmapProduct(rows, bags.columns)]
        ),
        STATIONARY_COLUMNS: _StationaryOperand(lambda: [(bags.columns * rows.columns, rows.rows)], table_stays),
    }


def _fill_short_rows(rows: CompressedRows) -> CompressedRows:
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
    return CompressedRows(max(rows.columns, fewest), pointer_of(sizes), np.concatenate(parts))


def _widen_matrix(matrix: np.ndarray) -> np.ndarray:
    """The matrix with explicit zeros up to the three columns that a bitmap engine needs."""
    missing = max(0, bitmap_sparse.FEWEST - matrix.shape[1])
    return np.pad(matrix, ((0, 0), (0, missing))) if missing else matrix


def _reuse_of_bags(
    description: EngineDescription, bags: Bags, mapping: Mapping[str, Any], counted: Result | Accesses
) -> Reuse:
    """Indices stay and rows of the table are looked up column by column; or the whole table stays, read once."""
    multipliers = description.hardware.multipliers
    outputs = len(bags.sizes) * bags.columns
    indices = Operand(counted.weight_reads)
    more = np.maximum(0, counted.writes - outputs)
    finite = np.minimum(outputs, counted.writes)
    if mapping["dataflow"] == STATIONARY_ROWS:
        sums = partial_sums(counted.psum_reads, more, bags.columns)
        table = TableRows(_lookups(bags, multipliers), 1)
        return Reuse((indices, sums), finite, 1 + bags.columns, multipliers, table=table)
    entries = min(int(counted.input_reads), bags.distinct.nonzeros)
    streams = rereading(counted.input_reads, (max(1, entries), entries))
    sums = partial_sums(counted.psum_reads, more, len(bags.sizes))
    return Reuse((indices, streams, sums), finite, 2 * multipliers, multipliers)


def _lookups(bags: Bags, multipliers: int) -> RowStream:
    """As many rows at once as there are multipliers; a row that a bag names twice is taken once."""
    rows = bags.distinct.indices
    return remembered_stream(
        bags, ("bitmap_sparse", multipliers), lambda: RowStream(rows, np.full(len(rows), min(multipliers, len(rows))))
    )
