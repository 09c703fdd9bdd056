"""An operation on an engine whose time depends on where operands are zero."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from sonda.accelerators import least_cycles
from sonda.accelerators import mapping as maps
from sonda.accelerators.candidate_tiles import combinations
from sonda.accelerators.engine_description import EngineDescription
from sonda.accelerators.engines import bitmap_sparse, compressed_row, gustavson, outer_product
from sonda.accelerators.engines.bitmap_sparse import BitmapProduct, DenseRows
from sonda.accelerators.engines.compressed_row import RowsByDense, RowTile, RowTimes
from sonda.accelerators.engines.sparse_product import SparseProduct
from sonda.accelerators.hardware import DATAFLOWS, Hardware
from sonda.accelerators.operands import CompressedRows, compressed_rows, pointer_of
from sonda.accelerators.operation import Bags, Convolution, Operation
from sonda.accelerators.repeated import times, total
from sonda.accelerators.reuse import Accesses
from sonda.accelerators.search import Choice, Listed, Options
from sonda.accelerators.taken import Taken
from sonda.record.errors import SondaError

STATIONARY_ROWS, STATIONARY_COLUMNS = DATAFLOWS
NONE = np.zeros(1, np.int64)
"""Cycles at least, of a mapping that is tried in any case."""
TimesOf = Callable[[EngineDescription, RowTile], RowTimes]
MOST_PATTERN = 1 << 31
"""Elements of an operand that is unpacked to be looked at."""


def choose(engine: EngineDescription, operation: Operation, given: bool) -> Choice:
    """The operation under one mapping for all its products: the description's where that is wanted and there is one,
    else a rule's."""
    if engine.kind == "bitmap_sparse":
        return _on_bitmaps(engine, operation, given).under(0)
    if engine.kind == "compressed_row":
        way = _compressing(operation)[0]
        return _under(engine, way, _row_tile(engine, way, given))
    return _merged(engine, operation)


def listed(engine: EngineDescription, operation: Operation, times_of: TimesOf) -> Listed:
    """All mappings of the operation, a rule's and the description's first; merging engines have one.

    `times_of` gives what rows take under a tile, so that operations share it.
    """
    if engine.kind == "bitmap_sparse":
        ways = _on_bitmaps(engine, operation, True)
        # What is read and written depends on the zeros of both operands.
        least = np.array([ways.least], np.int64)
        return Listed([Options(NONE, lambda number: ways.under(0))], [Options(least, lambda number: ways.under(1))])
    if engine.kind == "compressed_row":
        rows = _compressing(operation)
        tiles = dict.fromkeys(_row_tile(engine, rows[0], given) for given in (False, True))
        starts = [_row_options(engine, rows[0], times_of, tile) for tile in tiles]
        return Listed(starts, [_row_options(engine, way, times_of) for way in rows])
    return Listed([Options(NONE, lambda number: _merged(engine, operation))], [])


def choose_bags(engine: EngineDescription, operations: Sequence[Operation], given: bool) -> list[Choice]:
    """Embedding bags on compressed rows, all at once; each as `choose` would have it."""
    found: dict[int, Choice] = {}
    for tile, places, products in _by_tile(engine, operations, given):
        for place, result in zip(places, compressed_row.simulate_all(engine.hardware, products, tile), strict=True):
            found[place] = Choice({"T_N": tile.columns, "T_K": tile.entries}, result)
    return [found[place] for place in range(len(operations))]


def bags_together(engine: EngineDescription, operations: Sequence[Operation], given: bool) -> list[Taken]:
    """The same, those under one tile as one result whose counts are arrays."""
    found = []
    for tile, places, products in _by_tile(engine, operations, given):
        result = compressed_row.simulate_together(engine.hardware, products, tile)
        mappings = [{"T_N": tile.columns, "T_K": tile.entries}] * len(places)
        found.append(Taken(places, result, np.ones(len(places), np.int64), mappings.__getitem__))
    return found


def _by_tile(
    engine: EngineDescription, operations: Sequence[Operation], given: bool
) -> Iterator[tuple[RowTile, list[int], list[RowsByDense]]]:
    ways = [_compressing(operation)[0] for operation in operations]
    by_tile: dict[RowTile, list[int]] = {}
    for place, way in enumerate(ways):
        by_tile.setdefault(_row_tile(engine, way, given), []).append(place)
    for tile, places in by_tile.items():
        yield tile, places, [ways[place].products[0] for place in places]


def _merged(engine: EngineDescription, operation: Operation) -> Choice:
    merging = outer_product if engine.kind == "outer_product" else gustavson
    return Choice({}, total([merging.simulate(engine.hardware, one) for one in _both_compressed(operation)]))


# ---- bitmaps: which operand stays ---------------------------------------------------------------------------------


class _Staying(NamedTuple):
    """One dataflow of an operation."""

    held: list[tuple[int, int]]
    """Per product: ones of the operand that stays, and vectors that stream past it."""
    products: Callable[[], list[BitmapProduct]]


class _Bitmaps(NamedTuple):
    """Both dataflows, the chosen one first."""

    hardware: Hardware
    ways: tuple[tuple[str, _Staying], tuple[str, _Staying]]

    def under(self, number: int) -> Choice:
        dataflow, way = self.ways[number]
        results = [bitmap_sparse.simulate(self.hardware, one) for one in way.products()]
        return Choice({"dataflow": dataflow}, total(results))

    @property
    def least(self) -> int:
        """Cycles of the other one."""
        return sum(least_cycles.of_bitmaps(self.hardware, *one) for one in self.ways[1][1].held)


def _on_bitmaps(engine: EngineDescription, operation: Operation, given: bool) -> _Bitmaps:
    # As STONNE's front end: a convolution's filters are the first matrix, other weights the second; both stay. Of bags
    # the indices stay, so that cycles do not grow with the rows of the table.
    bags = isinstance(operation.shape, Bags)
    usual = STATIONARY_ROWS if bags or operation.kind == "convolution" else STATIONARY_COLUMNS
    chosen = engine.dataflow.get(operation.kind, usual) if given else usual
    ways = _ways_of_bags(operation.shape) if isinstance(operation.shape, Bags) else _ways_of_products(operation)
    (other,) = (dataflow for dataflow in ways if dataflow != chosen)
    return _Bitmaps(engine.hardware, ((chosen, ways[chosen]), (other, ways[other])))


def _ways_of_products(operation: Operation) -> dict[str, _Staying]:
    inputs, weights = _matrices(operation)
    pairs = [(_widened(left), _widened(right)) for left, right in zip(inputs, weights, strict=True)]
    if operation.kind == "convolution":
        pairs = [(right, left) for left, right in pairs]
    return {
        STATIONARY_ROWS: _Staying(
            [(int(np.count_nonzero(one)), len(other)) for one, other in pairs],
            lambda: [bitmap_sparse.bitmap_product(one, other.T, STATIONARY_ROWS) for one, other in pairs],
        ),
        STATIONARY_COLUMNS: _Staying(
            [(int(np.count_nonzero(other)), len(one)) for one, other in pairs],
            lambda: [bitmap_sparse.bitmap_product(one, other.T, STATIONARY_COLUMNS) for one, other in pairs],
        ),
    }


def _ways_of_bags(bags: Bags) -> dict[str, _Staying]:
    """The matrix of ones and zeros by the table; nothing is allocated for the table."""
    rows = _filled(bags.distinct)

    def table_stays() -> list[BitmapProduct]:
        before = np.concatenate(([0], np.cumsum(np.bincount(rows.indices, minlength=rows.columns))))
        return [BitmapProduct(DenseRows(bags.columns, rows.columns), rows.rows, before)]

    return {
        STATIONARY_ROWS: _Staying([(len(rows.indices), bags.columns)], lambda: [BitmapProduct(rows, bags.columns)]),
        STATIONARY_COLUMNS: _Staying([(bags.columns * rows.columns, rows.rows)], table_stays),
    }


# ---- compressed rows: which operand is compressed, and the tile ----------------------------------------------------


@dataclass(frozen=True)
class _Compressing:
    """An operand by rows, times the other."""

    products: list[RowsByDense]
    length: int
    """Columns of the compressed matrix."""
    words: dict[str, str]

    def alike(self) -> list[tuple[RowsByDense, int]]:
        """Products and how often each is there: only the entries per row count."""
        groups: dict[bytes, list[RowsByDense]] = {}
        for one in self.products:
            groups.setdefault(one.entries.tobytes(), []).append(one)
        return [(ones[0], len(ones)) for ones in groups.values()]

    @cached_property
    def sparsity(self) -> float:
        held = sum(int(one.entries.sum()) for one in self.products)
        return min(1.0, max(0.0, 1 - held / (sum(len(one.entries) for one in self.products) * self.length)))


_BAGS: WeakKeyDictionary[Bags, _Compressing] = WeakKeyDictionary()
"""Bags that are still in use, made ready once for all designs of an engine."""


def _row_tile(engine: EngineDescription, way: _Compressing, given: bool) -> RowTile:
    dense = way.products[0].columns
    if given and engine.tile:
        return RowTile(min(engine.tile["T_N"], dense), engine.tile["T_K"])
    return maps.rows_tile(engine.hardware, dense, way.length, way.sparsity)


def _compressing(operation: Operation) -> list[_Compressing]:
    """The operands that may be compressed, the one with more zeros first."""
    shape = operation.shape
    if isinstance(shape, Bags):
        if shape not in _BAGS:
            _BAGS[shape] = _Compressing([RowsByDense(shape.sizes.astype(np.int64), shape.columns)], shape.rows, {})
        return [_BAGS[shape]]
    inputs, weights = _matrices(operation)
    ways = [
        _Compressing(
            [RowsByDense(np.count_nonzero(one, axis=1).astype(np.int64), dense.shape[1]) for one in rows],
            rows.shape[2],
            {"rows": word},
        )
        for rows, dense, word in ((weights, inputs, "weights by rows"), (inputs, weights, "inputs by rows"))
    ]
    if np.count_nonzero(weights) * inputs.size > np.count_nonzero(inputs) * weights.size:
        ways.reverse()
    return ways


def _under(engine: EngineDescription, way: _Compressing, tile: RowTile) -> Choice:
    words = {"T_N": tile.columns, "T_K": tile.entries} | way.words
    alike = way.alike()
    results = compressed_row.simulate_all(engine.hardware, [one for one, _ in alike], tile)
    return Choice(words, total([times(one, count) for one, (_, count) in zip(results, alike, strict=True)]))


def _row_options(
    engine: EngineDescription, way: _Compressing, times_of: TimesOf, given: RowTile | None = None
) -> Options:
    """All tiles that a search looks at; or one."""
    hardware, dense = engine.hardware, way.products[0].columns
    if given is None:
        largest = (min(dense, hardware.multipliers // 2), hardware.multipliers)
        tiles = combinations(hardware.multipliers, (dense, way.length), largest)
        tiles = tiles[tiles[:, 1] > 1]
    else:
        tiles = np.array([[given.columns, given.entries]], np.int64)
    columns, summed = tiles[:, 0], tiles[:, 1]
    # Products follow each other, and rows too: all rows of all products are like those of one.
    entries = np.concatenate([one.entries for one in way.products])
    stored = int(np.maximum(entries, 1).sum())

    def tile(number: int) -> RowTile:
        return RowTile(*tiles[number].tolist())

    alike = way.alike()

    def cycles(number: int) -> int:
        rows = times_of(engine, tile(number))
        return sum(count * rows.cycles(one) for one, count in alike)

    return Options(
        least=NONE if given else least_cycles.of_row_tiles(hardware, entries, dense, columns, summed),
        simulate=lambda number: _under(engine, way, tile(number)),
        mapping={"T_N": columns, "T_K": summed} | way.words,
        # What is read does not depend on the tile.
        accesses=Accesses(stored, stored * dense, 0, len(entries) * dense),
        cycles=cycles,
    )


# ---- merging engines: both operands are compressed -----------------------------------------------------------------


def _both_compressed(operation: Operation) -> list[SparseProduct]:
    shape = operation.shape
    if isinstance(shape, Bags):
        # Only the rows of the table that are looked up count, however many there are.
        used, place = np.unique(shape.distinct.indices, return_inverse=True)
        wanted = CompressedRows(len(used), shape.distinct.pointer, place.astype(np.int64))
        return [SparseProduct(wanted, compressed_rows(np.ones((len(used), shape.columns), dtype=bool)))]
    return [SparseProduct(compressed_rows(left), compressed_rows(right.T))
            for left, right in zip(*_matrices(operation), strict=True)]  # fmt: skip


# ---- patterns ------------------------------------------------------------------------------------------------------


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
    return CompressedRows(max(rows.columns, fewest), pointer_of(sizes), np.concatenate(parts))


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
