"""Compressed rows times a dense matrix (MAGMA): one sparse row at a time, several columns of the dense matrix at once.

A tile of T_N virtual neurons of T_K multipliers each takes T_K entries of the row and T_N columns at a time. A row of z
entries is folded into F = ceil(z / T_K) steps and the N columns into ceil(N / T_N). For each row the networks are
configured (1 cycle), the weights of all folds distributed (one fold a cycle, each weight to the same place of every
neuron), the dense elements streamed (one step a cycle, folds fastest); accumulators sum the folds. The next row
starts when all is written. A row's time depends on F alone, so nothing here grows with the number of columns of the
sparse matrix (rows of a table).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sonda.accelerators.description.hardware import Hardware
from sonda.accelerators.engines.fabric import collection, distribution, multiplication, reduction
from sonda.accelerators.engines.result import Count, Result
from sonda.accelerators.operations.patterns import CompressedRows
from sonda.record.errors import SondaError
from sonda.record.jit import compiled

Whole = NDArray[np.int64]


@dataclass(frozen=True)
class RowsByDense:
    """A sparse matrix, by how many entries each of its rows has, times a dense one of so many columns."""

    entries: Whole
    """Per row; an empty row is stored as one explicit zero and takes the time of one entry."""
    columns: int


@dataclass(frozen=True)
class RowTile:
    """T_N columns in parallel, T_K entries of a row at once."""

    columns: int
    entries: int


def rows_by_dense(rows: CompressedRows, columns: int) -> RowsByDense:
    """The operation for these rows, whatever the columns of their entries are."""
    return RowsByDense(rows.row_sizes(), columns)


def simulate(hardware: Hardware, product: RowsByDense, tile: RowTile) -> Result:
    """Cycles, accesses and counters; they depend on the entries per row only. Raises SondaError where it cannot be.

    The stack, summed over rows: `configuration`, 1 cycle; `compute`, a cycle for every streamed step; `distribution`,
    what the last product comes later than that (weights, shared ports); `reduction`, from the last product until the
    last sum is offered to the collection bus; `writeback`, the rest.
    """
    return simulate_all(hardware, [product], tile)[0]


def simulate_all(hardware: Hardware, products: Sequence[RowsByDense], tile: RowTile) -> list[Result]:
    """Several products under one tile, such as all embedding bags of a step, each as `simulate` gives it."""
    totals, paths, weights = _run_products(hardware, products, tile)
    return [_result(hardware, tile, product_totals, paths, weights) for product_totals in totals]


def simulate_together(hardware: Hardware, products: Sequence[RowsByDense], tile: RowTile) -> Result:
    """The results of `simulate_all` as one, whose counts are arrays with an element for each product."""
    totals, paths, weights = _run_products(hardware, products, tile)
    return _result(hardware, tile, _Rows(*np.array(totals, np.int64).T), paths, weights)


class _Rows(NamedTuple):
    """What the rows of a product take together."""

    product_at: Count
    offered_at: Count
    length: Count
    """Cycles of the last product, of the last sum's being offered and of its being written, each from its row's first,
    summed over rows."""
    count: Count
    weight_steps: Count
    blocks: Count
    stored: Count
    columns: Count
    last_folds: Count
    """Folds of the last row."""


def _run_products(
    hardware: Hardware, products: Sequence[RowsByDense], tile: RowTile
) -> tuple[list[_Rows], reduction.Reduction, distribution.Routing]:
    """Ways through the networks depend on the tile only, and the times of a row on its folds only: both are computed
    once for all products."""
    for product in products:
        _check_tile(hardware, product, tile)
    known = RowTimes(hardware, tile)
    if len(products) > 1:
        known.prepare(products)
    totals = []
    for product in products:
        folds, rows, times = known.rows(product)
        product_at, offered_at, length = (times @ rows).tolist()
        totals.append(
            _Rows(
                product_at=product_at,
                offered_at=offered_at,
                length=length,
                count=len(product.entries),
                weight_steps=int(rows @ folds),
                blocks=known.blocks(product),
                stored=int(np.maximum(product.entries, 1).sum()),
                columns=product.columns,
                last_folds=-(-max(int(product.entries[-1]), 1) // tile.entries),
            )
        )
    used = np.arange(tile.columns * tile.entries)
    return totals, known.paths, distribution.route(hardware, used % tile.entries, used)


class RowTimes:
    """What rows take under one tile, by their folds and by the blocks of columns; each is computed once."""

    def __init__(self, hardware: Hardware, tile: RowTile) -> None:
        self._hardware = hardware
        self._tile = tile
        first = np.arange(tile.columns) * tile.entries
        self.paths = reduction.reduce(hardware, first, first + tile.entries - 1)
        self._known: dict[int, tuple[Whole, Whole]] = {}

    def prepare(self, products: Sequence[RowsByDense]) -> None:
        """Compute all that these products ask for in one go."""
        wanted: dict[int, list[Whole]] = {}
        for product in products:
            wanted.setdefault(self.blocks(product), []).append(self._folds(product))
        for blocks, folds in wanted.items():
            self._times_of_folds(blocks, np.unique(folds[0] if len(folds) == 1 else np.concatenate(folds)))

    def blocks(self, product: RowsByDense) -> int:
        """Parts into which the tile cuts the columns."""
        return -(-product.columns // self._tile.columns)

    def rows(self, product: RowsByDense) -> tuple[Whole, Whole, Whole]:
        """The folds that rows have, how many rows have them, and the times of one such row (see `_row_times`)."""
        folds, rows = np.unique(self._folds(product), return_counts=True)
        return folds, rows, self._times_of_folds(self.blocks(product), folds)

    def cycles(self, product: RowsByDense) -> int:
        """Cycles of all rows, one after the other."""
        _, rows, times = self.rows(product)
        return int(rows @ times[2])

    def _folds(self, product: RowsByDense) -> Whole:
        folds: Whole = -(-np.maximum(product.entries, 1) // self._tile.entries)
        return folds

    def _times_of_folds(self, blocks: int, folds: Whole) -> Whole:
        """Times of rows with these folds, which ascend."""
        known, times = self._known.get(blocks, (np.zeros(0, np.int64), np.zeros((3, 0), np.int64)))
        place = np.searchsorted(known, folds)
        missing = folds if not len(known) else folds[known[np.minimum(place, len(known) - 1)] != folds]
        if len(missing):
            row_times = compiled(_row_times)(
                missing,
                blocks,
                self._tile.columns,
                self._tile.entries,
                distribution.span(self._hardware),
                distribution.arrival_delay(self._hardware),
                self._hardware.write_ports,
                self.paths.hops,
                self.paths.line,
                self.paths.delay,
            )
            if len(known):
                order = np.argsort(np.concatenate((known, missing)))
                missing, row_times = (np.concatenate(pair, axis=-1)[..., order]
                                  for pair in ((known, missing), (times, row_times)))  # fmt: skip
            known, times = self._known[blocks] = missing, row_times
            place = np.searchsorted(known, folds)
        return times if len(known) == len(folds) else times[:, place]


def _result(
    hardware: Hardware, tile: RowTile, rows: _Rows, paths: reduction.Reduction, weights: distribution.Routing
) -> Result:
    """The result of one product; or of many, whose counts are arrays."""
    used = tile.columns * tile.entries
    count, stored = rows.count, rows.stored
    steps = rows.weight_steps * rows.blocks
    products = steps * used
    nodes, two, three = paths.totals
    results = steps * tile.columns
    outputs = count * rows.blocks * tile.columns
    return Result(
        cycles=rows.length,
        weight_reads=stored,
        input_reads=stored * rows.columns,
        psum_reads=0 * count,
        writes=count * rows.columns,
        multiplications=products,
        counters={
            "DSNetwork": distribution.activity(
                hardware, weights.times(rows.weight_steps).plus(distribution.unicast(hardware, products))
            ),
            "MSNetwork": multiplication.activity(
                hardware,
                weights=rows.weight_steps * used,
                weights_left=rows.last_folds * used,
                products=products,
                configured=count * used,
            ),
            "ReduceNetwork": reduction.activity(
                hardware,
                reduction.ReductionWork(
                    sends=products,
                    nodes=steps * nodes,
                    two=steps * two,
                    three=steps * three,
                    results=results,
                    outputs=outputs,
                    configured=count * paths.configured,
                ),
            ),
            "GlobalBuffer": {
                "GLOBALBUFFER": {
                    "entries": 1,
                    "READ": stored * (1 + rows.columns),
                    "WRITE": count * rows.columns,
                }
            },
            "CollectionBus": collection.activity(hardware, outputs),
        },
        stack={
            "distribution": rows.product_at - count - steps,
            "compute": steps,
            "reduction": rows.offered_at - rows.product_at,
            "writeback": rows.length - rows.offered_at,
            "configuration": count,
        },
    )


def _check_tile(hardware: Hardware, product: RowsByDense, tile: RowTile) -> None:
    hardware.check()
    if hardware.reduction != "ASNETWORK" or not hardware.accumulators:
        raise SondaError(
            f"reduction = {hardware.reduction!r} with accumulators = {hardware.accumulators} cannot sum a row's folds",
            "set reduction = 'ASNETWORK' and accumulators = true",
        )
    if tile.entries < 2:
        raise SondaError(f"T_K = {tile.entries} puts two columns on one adder", "give T_K of at least 2")
    if tile.columns < 1 or tile.columns * tile.entries > hardware.multipliers:
        raise SondaError(
            f"T_N x T_K = {tile.columns} x {tile.entries} does not fit multipliers = {hardware.multipliers}",
            "give a smaller tile",
        )
    if product.entries.size < 1 or product.entries.min() < 0:
        raise SondaError("the sparse matrix has no rows or a negative number of entries", "give at least one row")
    if not 1 <= product.columns <= 1 << 40:
        raise SondaError(f"N = {product.columns} is not a size from 1 to 2^40", "change N")


def _row_times(
    folds: Whole,
    blocks: int,
    neurons: int,
    size: int,
    span: int,
    delta: int,
    lines: int,
    hops: Whole,
    line: Whole,
    delay: Whole,
) -> Whole:
    """Per number of folds the cycles, counted from a row's first, of the last product, of the last sum's being
    offered to the bus, and of the last result's being written: three rows.

    Multiplier m on port p gets step i in cycle 2 + F W_p + i I_p + (m's place in p) + delta, where W_p and I_p are
    the weights and the elements that p sends for a step. Of a neuron's multipliers on one port only the last to be
    heard matters.
    """
    times = np.zeros((3, folds.size), np.int64)
    multipliers = neurons * size
    # Pieces of neurons on one port, in ascending order: where a neuron's begin, and their weights, elements and way.
    begin = np.zeros(neurons + 1, np.int64)
    weights = np.zeros(multipliers, np.int64)
    elements = np.zeros(multipliers, np.int64)
    place = np.zeros(multipliers, np.int64)
    way = np.zeros(multipliers, np.int64)
    pieces = 0
    for m in range(multipliers):
        if m % size == 0:
            begin[m // size] = pieces
        if m % size == 0 or m % span == 0:
            port_begin = m - m % span
            elements[pieces] = min(span, multipliers - port_begin)
            weights[pieces] = min(size, elements[pieces])
            pieces += 1
        place[pieces - 1] = m % span
        way[pieces - 1] = max(way[pieces - 1], m % span + hops[m])
    begin[neurons] = pieces

    shared = np.zeros(lines, np.int64)
    for v in range(neurons):
        shared[line[v]] += 1
    most = 0
    for number in range(lines):
        most = max(most, shared[number])
    offered = np.zeros((neurons, blocks), np.int64)
    for number in range(folds.size):
        fold = folds[number]
        latest = 0
        for v in range(neurons):
            for block in range(blocks):
                step = block * fold + fold - 1
                leaves = 0
                for piece in range(begin[v], begin[v + 1]):
                    at = fold * weights[piece] + step * elements[piece]
                    leaves = max(leaves, at + way[piece])
                    times[0, number] = max(times[0, number], 2 + delta + at + place[piece])
                offered[v, block] = 2 + delta + leaves + delay[v]
                latest = max(latest, offered[v, block])
        times[1, number] = latest
        arriving = np.zeros(latest + most * blocks + 2, np.int64)
        waiting_here = np.zeros(latest + 1, np.int64)
        done = np.zeros(lines, np.bool_)
        for v in range(neurons):
            if shared[line[v]] == 1:
                for block in range(blocks):
                    arriving[offered[v, block]] += 1
            elif not done[line[v]]:
                done[line[v]] = True
                waiting_here[:] = 0
                for other in range(v, neurons):
                    if line[other] == line[v]:
                        for block in range(blocks):
                            waiting_here[offered[other, block]] += 1
                waiting = 0
                for cycle in range(latest + 1):
                    waiting += waiting_here[cycle]
                    if waiting > 0:
                        arriving[cycle] += 1
                        waiting -= 1
                for more in range(waiting):
                    arriving[latest + 1 + more] += 1
        left = neurons * blocks
        waiting = cycle = 0
        while left > 0:
            if cycle < arriving.size:
                waiting += arriving[cycle]
            left -= waiting - waiting // 2
            waiting //= 2
            cycle += 1
        times[2, number] = cycle
    return times
