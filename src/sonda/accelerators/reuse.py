"""Reuse: what an engine reads and writes again and again, and how much must stay in the buffer not to cross twice.

An engine's own counts say how often it takes every operand from the global buffer. Where nothing stays there, all of
that crosses from the memory behind it. Each kind of engine has a fixed order of loops, and from it follows what must
stay so that an operand crosses less often: the inputs of a tile, the rows of an image under a window, a whole matrix.
Keeping a part of that saves the same part of the crossings, as when this part never leaves and the rest passes by.

Every count may be an array: many mappings of an operation at once, or many buffers behind one mapping.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sonda.accelerators.engine_description import DENSE, EngineDescription
from sonda.accelerators.hardware import DATAFLOWS
from sonda.accelerators.operation import Convolution, MatrixProduct, Operation
from sonda.accelerators.result import Count, Result

STATIONARY_ROWS = DATAFLOWS[0]
LARGEST = 1 << 62
"""Products of counts below it are safe in 64 bits."""


class Accesses(NamedTuple):
    """What an engine reads and writes, as its `Result` counts it; arrays where it is of many mappings."""

    weight_reads: Count
    input_reads: Count
    psum_reads: Count
    writes: Count


class Saving(NamedTuple):
    """So many elements that stay, and what no longer crosses then."""

    kept: Count
    reads: Count
    writes: Count


class Operand(NamedTuple):
    """Elements that cross with nothing kept, and what can be saved, the best first, each beyond those before it."""

    reads: Count
    writes: Count = 0
    savings: tuple[Saving, ...] = ()


class Crossing(NamedTuple):
    """Elements of an operand that cross."""

    reads: Count
    writes: Count


@dataclass(frozen=True)
class Reuse:
    """One operation on one engine, in elements."""

    operands: tuple[Operand, ...]
    outputs: Count
    """Results that are written once, when they are finished."""
    first: Count
    """Operands without which the engine does not start: those of its first step, and the weights that go before."""
    last: Count
    """Results of its last step, which leave after it."""
    starts: Count = 1
    """How often it starts so, with other weights."""


def rereading(reads: Count, *points: tuple[Count, Count]) -> Operand:
    """An operand that is read so often, by what would be read with so many elements kept: (kept, reads).

    Between two points a part of the way is kept, so only those count that no such mixture beats. Savings that are
    worth nothing keep nothing.
    """
    savings: list[Saving] = []
    at: Count = 0
    now = reads
    for _ in points:
        worth: Any = 0.0
        kept, left = at, now
        for more, rest in points:
            worthy = (now - rest) / np.maximum(more - at, 1)
            better = (more > at) & (rest < now) & ((worthy > worth) | ((worthy == worth) & (more > kept)))
            worth, kept, left = (np.where(better, *pair) for pair in ((worthy, worth), (more, kept), (rest, left)))
        savings.append(Saving(kept - at, now - left, 0))
        at, now = kept, left
    return Operand(reads, 0, tuple(savings))


def crossings(operands: Sequence[Operand], room: Count) -> tuple[list[Crossing], Count]:
    """What crosses with room for so many elements, given first to what saves most for it; and the room left over."""
    savings = [(place, saving) for place, operand in enumerate(operands) for saving in operand.savings]
    if not savings:
        return [Crossing(one.reads, one.writes) for one in operands], room
    shape = np.broadcast_shapes(np.shape(room), *(np.shape(count) for _, saving in savings for count in saving))
    kept, *saved = np.stack(
        [np.broadcast_to(np.array(count, np.int64), shape) for which in zip(*(one for _, one in savings), strict=True)
         for count in which]
    ).reshape(3, len(savings), *shape)  # fmt: skip
    order = np.argsort(-(saved[0] + saved[1]) / np.maximum(kept, 1), axis=0, kind="stable")
    ordered = np.take_along_axis(kept, order, axis=0)
    before = np.cumsum(ordered, axis=0) - ordered
    taken = np.empty_like(kept)
    np.put_along_axis(taken, order, np.clip(room - before, 0, ordered), axis=0)
    reads, writes = ([getattr(one, name) for one in operands] for name in ("reads", "writes"))
    for crossing, counts in ((reads, saved[0]), (writes, saved[1])):
        for (place, _), share in zip(savings, _part(counts, taken, kept), strict=True):
            crossing[place] = crossing[place] - share
    return [Crossing(*one) for one in zip(reads, writes, strict=True)], np.maximum(room - kept.sum(axis=0), 0)


def _part(whole: NDArray[np.int64], taken: NDArray[np.int64], kept: NDArray[np.int64]) -> NDArray[np.int64]:
    """The part of the whole that belongs to what is taken of what would be kept, rounded down; never beyond 64 bits."""
    some = taken < kept
    of, part = np.where(some, kept, 1), np.where(some, taken, 0)
    if int(of.max()) * int(part.max()) >= LARGEST:
        of, part, whole = (one.astype(object) for one in (of, part, whole))
    found = whole // of * part + whole % of * part // of
    return np.where(some, found, whole).astype(np.int64)


def reuse_of(
    engine: EngineDescription,
    shape: MatrixProduct | Convolution,
    mapping: dict[str, Any],
    result: Result | Accesses,
    operation: Operation | None = None,
) -> Reuse:
    """How this engine goes over the operands of a product or a convolution under this mapping.

    `operation` tells sparse engines how many elements are not zero; without it operands count as full. The sizes of
    the mapping and what is counted may be arrays; engines that merge need the whole result.
    """
    if engine.kind == "flexible_dense" and isinstance(shape, Convolution) and "T_R" in mapping:
        return _direct(shape, mapping, result)
    sizes = _Sizes.of(shape, None if engine.kind in DENSE else operation)
    if engine.kind == "flexible_dense":
        return _blocks(sizes, mapping, result)
    if engine.kind == "mesh":
        return _mesh(sizes, mapping, result)
    if engine.kind == "bitmap_sparse":
        # As placement has it: a convolution's filters are the first matrix, else the inputs are.
        filters_first = operation.kind == "convolution" if operation else isinstance(shape, Convolution)
        return _bitmap(engine, sizes, mapping, result, filters_first)
    if engine.kind == "compressed_row":
        return _rows(sizes, mapping, result)
    assert isinstance(result, Result), "engines that merge have no mappings to choose from"
    return _merging(engine, sizes, result)


def partial_sums(reads: Count, writes: Count, kept: Count) -> Operand:
    """Sums that are written and read again; while they wait, so many elements of them."""
    some = (reads > 0) | (writes > 0)
    return Operand(reads, writes, (Saving(some * np.maximum(1, kept), reads, writes),))


@lru_cache(maxsize=1 << 14)
def distinct_inputs(shape: Convolution) -> int:
    """Elements of the image that some window covers; padding is none."""
    rows, columns = map(np.count_nonzero, shape.coverage())
    return shape.N * shape.C * int(rows) * int(columns)


class _Sizes(NamedTuple):
    """Of a product, or of a convolution as one; `inputs` and `weights` are the elements that must cross at least."""

    m: int
    n: int
    k: int
    products: int
    """Of these sizes, one after the other."""
    inputs: int
    weights: int
    image: Convolution | None

    @staticmethod
    def of(shape: MatrixProduct | Convolution, operation: Operation | None) -> _Sizes:
        image = shape if isinstance(shape, Convolution) else None
        product = shape.product() if isinstance(shape, Convolution) else shape
        m, n, k, count = product.m, product.n, product.k, product.count
        inputs = m * k * count if image is None else distinct_inputs(image)
        weights = n * k * count
        if operation is not None:
            # Zeros that no window covers are counted off as well; never more than there are.
            if operation.inputs is not None:
                inputs = min(inputs, int(np.prod(operation.inputs.shape, dtype=np.int64)) - operation.inputs.zeros)
            if operation.weights is not None:
                weights = min(weights, int(np.prod(operation.weights.shape, dtype=np.int64)) - operation.weights.zeros)
        return _Sizes(m, n, k, count, inputs, weights, image)

    @property
    def outputs(self) -> int:
        return self.m * self.n * self.products

    def one(self, elements: int) -> int:
        """The share of one of the products, which follow each other."""
        return -(-elements // self.products)

    def lines(self, windows: Count) -> Count:
        """Elements of the image under so many windows that follow each other, whole rows."""
        image = self.image
        if image is None:
            return windows * self.k
        rows, columns = image.outputs
        spanned = np.minimum(rows, -(-(windows - 1) // columns) + 1)
        high = np.minimum(image.X, (spanned - 1) * image.stride[0] + image.dilation[0] * (image.R - 1) + 1)
        return high * image.Y * (image.C // image.G)


def _direct(shape: Convolution, tile: dict[str, Any], result: Result | Accesses) -> Reuse:
    """Flexible dense, a convolution itself. Batches outside, then groups, filters, windows: weights come again for
    every batch, inputs for every block of filters, and where windows overlap."""
    images, groups = -(-shape.N // tile["T_N"]), -(-shape.G // tile["T_G"])
    blocks = -(-(shape.K // shape.G) // tile["T_K"])
    channels, taps = shape.C // shape.G, shape.R * shape.S
    weights, inputs = shape.K * channels * taps, distinct_inputs(shape)
    high = np.minimum(shape.X, (tile["T_X_"] - 1) * shape.stride[0] + shape.R)
    lines = high * shape.Y * channels * tile["T_G"] * tile["T_N"]
    rows, columns = shape.outputs
    outputs = shape.N * shape.K * rows * columns
    windows = tile["T_N"] * tile["T_G"] * tile["T_X_"] * tile["T_Y_"]
    neurons = windows * tile["T_K"]
    filled = tile["T_K"] * tile["T_G"] * channels * taps + windows * tile["T_R"] * tile["T_S"] * tile["T_C"]
    operands = (
        _operand(result.weight_reads, weights, (weights, weights)),
        _operand(result.input_reads, inputs, (lines, inputs * blocks), (-(-inputs // (images * groups)), inputs)),
        partial_sums(result.psum_reads, result.writes - outputs, neurons),
    )
    return Reuse(operands, outputs, filled, neurons, images * groups * blocks)


def _blocks(sizes: _Sizes, tile: dict[str, Any], result: Result | Accesses) -> Reuse:
    """Flexible dense, a product. Blocks of T_N columns outside, all rows for each: inputs come again for every block,
    weights once."""
    blocks = -(-sizes.n // tile["T_N"])
    neurons = tile["T_M"] * tile["T_N"]
    operands = (
        _operand(result.weight_reads, sizes.weights, (sizes.one(sizes.weights), sizes.weights)),
        _operand(
            result.input_reads,
            sizes.inputs,
            (tile["T_M"] * sizes.k, sizes.m * sizes.k * sizes.products * blocks),
            (sizes.lines(tile["T_M"]), sizes.inputs * blocks),
            (sizes.one(sizes.inputs), sizes.inputs),
        ),
        partial_sums(result.psum_reads, result.writes - sizes.outputs, neurons),
    )
    filled = tile["T_N"] * sizes.k + tile["T_M"] * tile["T_K"]
    return Reuse(operands, sizes.outputs, filled, neurons, blocks * sizes.products)


def _mesh(sizes: _Sizes, tile: dict[str, Any], result: Result | Accesses) -> Reuse:
    """Mesh. Tiles of T_M rows outside, all columns for each: weights come again for every T_M rows, and the inputs of
    these rows for every T_N columns."""
    operands = (
        _operand(result.weight_reads, sizes.weights, (sizes.one(sizes.weights), sizes.weights)),
        _operand(
            result.input_reads,
            sizes.inputs,
            (tile["T_M"] * sizes.k, sizes.m * sizes.k * sizes.products),
            (sizes.lines(tile["T_M"]), sizes.inputs),
        ),
    )
    return Reuse(operands, sizes.outputs, tile["T_M"] + tile["T_N"], tile["T_M"] * tile["T_N"])


def _bitmap(
    engine: EngineDescription, sizes: _Sizes, mapping: dict[str, Any], result: Result | Accesses, filters_first: bool
) -> Reuse:
    """Bitmap sparse. What stays in the multipliers is read once, the other matrix again for every filling of them.
    Sums of a vector that is too long for them wait for its next piece, one for each vector that streams."""
    weights_stay = filters_first == (mapping["dataflow"] == STATIONARY_ROWS)
    stays, streams = (sizes.weights, sizes.inputs) if weights_stay else (sizes.inputs, sizes.weights)
    vectors = sizes.m if weights_stay else sizes.n
    operands = (
        _operand(result.weight_reads, stays, (sizes.one(stays), stays)),
        _operand(result.input_reads, streams, (sizes.one(streams), streams)),
        partial_sums(result.psum_reads, np.maximum(0, result.writes - sizes.outputs), vectors),
    )
    multipliers = engine.hardware.multipliers
    return Reuse(operands, np.minimum(sizes.outputs, result.writes), multipliers + sizes.k, multipliers)


def _rows(sizes: _Sizes, mapping: dict[str, Any], result: Result | Accesses) -> Reuse:
    """Compressed rows by a dense matrix. The compressed one is read once; every row takes what it names of the other,
    which is whole, zeros and all."""
    by_weights = mapping["rows"] == "weights by rows"
    image = sizes.image
    full = sizes.m * sizes.k * sizes.products if image is None else distinct_inputs(image)
    rows, dense = (sizes.weights, full) if by_weights else (sizes.inputs, sizes.n * sizes.k * sizes.products)
    operands = (
        _operand(result.weight_reads, rows, (sizes.one(rows), rows)),
        _operand(result.input_reads, dense, (sizes.one(dense), dense)),
    )
    return Reuse(operands, sizes.outputs, mapping["T_K"] * (1 + mapping["T_N"]), mapping["T_N"])


def _merging(engine: EngineDescription, sizes: _Sizes, result: Result) -> Reuse:
    """Outer product and Gustavson: inputs are the first matrix, read once, weights the second, a row for every entry.
    Entries of one column follow each other in the outer product, so that few rows serve them; then all products
    wait to be merged. In Gustavson's order only what one row leaves waits."""
    multipliers = engine.hardware.multipliers
    outer = engine.kind == "outer_product"
    whole = sizes.one(sizes.weights)
    pieces = -(-sizes.k // multipliers) * sizes.n
    operands = (
        _operand(result.weight_reads, sizes.inputs, (sizes.one(sizes.inputs), sizes.inputs)),
        _operand(
            result.input_reads, sizes.weights, (min(whole, multipliers * sizes.n) if outer else whole, sizes.weights)
        ),
        merged_sums(result, sizes.one(result.writes) if outer else pieces),
    )
    return Reuse(operands, finished(engine, result), 2 * multipliers, multipliers)


def merged_sums(result: Result, kept: int) -> Operand:
    """Partial results of the engines that merge, all of which they write and read again."""
    return partial_sums(result.psum_reads, result.writes, min(kept, max(1, result.writes)))


def finished(engine: EngineDescription, result: Result) -> int:
    """Elements that leave the merging tree for good; they go past the buffer and are not among an engine's writes."""
    again = result.writes - result.multiplications if engine.kind == "outer_product" else result.writes
    return result.counters["CollectionBus"]["FIFO"]["PUSH"] - again


def _operand(reads: Count, least: int, *points: tuple[Count, Count]) -> Operand:
    """Never less than what must cross, never more than the engine reads."""
    fewest = np.minimum(least, reads)
    return rereading(
        reads, *((np.maximum(1, kept), np.minimum(reads, np.maximum(fewest, left))) for kept, left in points)
    )
