"""The two engines that merge, outer product and Gustavson, as kinds: both operands are compressed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from sonda.accelerators.description.engine import OPERATIONS, EngineDescription
from sonda.accelerators.engines import gustavson, outer_product
from sonda.accelerators.engines.contract import Engine
from sonda.accelerators.engines.kinds.limits import wrong_reduction, wrong_tree
from sonda.accelerators.engines.merge_tree import SparseProduct
from sonda.accelerators.engines.result import Result, sum_results
from sonda.accelerators.mapping.search import UNBOUNDED, FormMappings, MappingSpace
from sonda.accelerators.memory.lookups import RowStream, remembered_stream
from sonda.accelerators.memory.reuse import (
    Accesses,
    Operand,
    ProductSizes,
    Reuse,
    TableRows,
    partial_sums,
    reread_operand,
)
from sonda.accelerators.operations.matrices import matrices_of
from sonda.accelerators.operations.patterns import CompressedRows, compressed_rows
from sonda.accelerators.operations.program import Bags, ConvolutionShape, MatrixProduct, Operation
from sonda.record.errors import SondaError


class Merging(Engine):
    """Products of both compressed operands go through a merging tree; there is one mapping."""

    operations = OPERATIONS
    zeros_matter = True
    moves_memory = True
    accumulators = False
    # Only in a variant of STONNE, in which none of its four controllers selects a merging engine.
    controller = "SIGMA_SPARSE_GEMM"

    def problems(self, description: EngineDescription, wrong: set[str]) -> Iterator[SondaError]:
        """A merging tree that a read port feeds at every leaf."""
        hardware = description.hardware
        yield from wrong_reduction(description, wrong)
        yield from wrong_tree(description, wrong)
        if wrong.isdisjoint({"multipliers", "read_ports"}) and hardware.read_ports != hardware.multipliers:
            yield SondaError(
                f"read_ports = {hardware.read_ports} brings elements to the merging tree out of step",
                f"set it to multipliers = {hardware.multipliers}",
            )

    def mappings(self, description: EngineDescription, operation: Operation) -> MappingSpace:
        """The only one."""
        return MappingSpace([FormMappings(UNBOUNDED, lambda number: self.choose(description, operation, True))], [])


class OuterProduct(Merging):
    """Columns of the first operand by rows of the second; all products wait to be merged."""

    def simulate(self, description: EngineDescription, operation: Operation, mapping: Mapping[str, Any]) -> Result:
        """All products, one after the other."""
        products = _compressed_products(operation)
        return sum_results([outer_product.simulate(description.hardware, product) for product in products])

    def reuse(
        self,
        description: EngineDescription,
        shape: MatrixProduct | ConvolutionShape | Bags,
        mapping: Mapping[str, Any],
        counted: Result | Accesses,
        operation: Operation | None,
    ) -> Reuse:
        """Inputs are the first matrix, read once, weights the second, a row for every entry. Entries of one column
        follow each other, so that few rows serve them; then all products wait to be merged."""
        assert isinstance(counted, Result), "engines that merge have no mappings to choose from"
        # A product that is written for the first time is not yet one that was merged.
        finished = _count_pushed(counted) - (counted.writes - counted.multiplications)
        multipliers = description.hardware.multipliers
        if isinstance(shape, Bags):
            stream = _lookups(shape, "outer_product", np.sort)
            return _reuse_of_bags(shape, counted, counted.writes, finished, multipliers, stream)
        sizes = ProductSizes.from_shape(shape, operation)
        kept = min(sizes.share_of_one(sizes.weights), multipliers * sizes.n)
        return _reuse_of_products(sizes, counted, kept, sizes.share_of_one(counted.writes), finished, multipliers)


class Gustavson(Merging):
    """Rows of the first operand, each by the rows of the second that it names; only what one row leaves waits."""

    def simulate(self, description: EngineDescription, operation: Operation, mapping: Mapping[str, Any]) -> Result:
        """All products, one after the other."""
        products = _compressed_products(operation)
        return sum_results([gustavson.simulate(description.hardware, product) for product in products])

    def reuse(
        self,
        description: EngineDescription,
        shape: MatrixProduct | ConvolutionShape | Bags,
        mapping: Mapping[str, Any],
        counted: Result | Accesses,
        operation: Operation | None,
    ) -> Reuse:
        """Inputs are the first matrix, read once, weights the second, a row for every entry."""
        assert isinstance(counted, Result), "engines that merge have no mappings to choose from"
        finished = _count_pushed(counted) - counted.writes
        multipliers = description.hardware.multipliers
        if isinstance(shape, Bags):
            waiting = -(-int(shape.sizes.max()) // multipliers) * shape.columns
            stream = _lookups(shape, "gustavson", np.asarray)
            return _reuse_of_bags(shape, counted, waiting, finished, multipliers, stream)
        sizes = ProductSizes.from_shape(shape, operation)
        waiting = -(-sizes.k // multipliers) * sizes.n
        return _reuse_of_products(sizes, counted, sizes.share_of_one(sizes.weights), waiting, finished, multipliers)


def _compressed_products(operation: Operation) -> list[SparseProduct]:
    shape = operation.shape
    if isinstance(shape, Bags):
        # Only the rows of the table that are looked up count, however many there are.
        used, place = np.unique(shape.distinct.indices, return_inverse=True)
        wanted = CompressedRows(len(used), shape.distinct.pointer, place.astype(np.int64))
        return [SparseProduct(wanted, compressed_rows(np.ones((len(used), shape.columns), dtype=bool)))]
    return [SparseProduct(compressed_rows(left), compressed_rows(right.T))
            for left, right in zip(*matrices_of(operation), strict=True)]  # fmt: skip


def _count_pushed(result: Result) -> int:
    """Elements that leave the merging tree. Those for good go past the buffer and are not among an engine's writes."""
    return result.counters["CollectionBus"]["FIFO"]["PUSH"]


def _merged_sums(result: Result, waiting: int) -> Operand:
    """Partial results, all of which are written and read again; so many wait at a time."""
    return partial_sums(result.psum_reads, result.writes, min(waiting, max(1, result.writes)))


def _reuse_of_products(
    sizes: ProductSizes, result: Result, kept: int, waiting: int, finished: int, multipliers: int
) -> Reuse:
    """With so many weights kept, the rows of the second matrix are read once."""
    operands = (
        reread_operand(result.weight_reads, sizes.inputs, (sizes.share_of_one(sizes.inputs), sizes.inputs)),
        reread_operand(result.input_reads, sizes.weights, (kept, sizes.weights)),
        _merged_sums(result, waiting),
    )
    return Reuse(operands, finished, 2 * multipliers, multipliers)


def _reuse_of_bags(
    bags: Bags, result: Result, waiting: int, finished: int, multipliers: int, stream: RowStream
) -> Reuse:
    operands = (Operand(result.weight_reads), _merged_sums(result, waiting))
    return Reuse(operands, finished, 1 + bags.columns, multipliers, table=TableRows(stream, bags.columns))


def _lookups(bags: Bags, kind: str, ordered: Callable[[np.ndarray], np.ndarray]) -> RowStream:
    """Rows one at a time; one that a bag names twice is taken once."""
    rows = bags.distinct.indices
    return remembered_stream(bags, (kind,), lambda: RowStream(ordered(rows), np.ones(len(rows), np.int64)))
