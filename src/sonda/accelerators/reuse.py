"""Reuse: what an engine reads and writes again and again, and how much must stay in the buffer not to cross twice.

An engine's own counts say how often it takes every operand from the global buffer. Where nothing stays there, all of
that crosses from the memory behind it. Each kind of engine has a fixed order of loops, and from it follows what must
stay so that an operand crosses less often: the inputs of a tile, the rows of an image under a window, a whole matrix.
Keeping a part of that saves the same part of the crossings, as when this part never leaves and the rest passes by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from sonda.accelerators.engine_description import DATAFLOWS, EngineDescription
from sonda.accelerators.operation import Convolution, MatrixProduct, Operation
from sonda.accelerators.result import Result

STATIONARY_ROWS = DATAFLOWS[0]
DENSE = ("flexible_dense", "mesh")
"""Kinds of engine that fetch zeros like any other element."""


class Saving(NamedTuple):
    """So many elements that stay, and what no longer crosses then."""

    kept: int
    reads: int
    writes: int

    @property
    def worth(self) -> float:
        return (self.reads + self.writes) / self.kept


class Operand(NamedTuple):
    """Elements that cross with nothing kept, and what can be saved, the best first, each beyond those before it."""

    reads: int
    writes: int = 0
    savings: tuple[Saving, ...] = ()


class Crossing(NamedTuple):
    """Elements of an operand that cross."""

    reads: int
    writes: int


@dataclass(frozen=True)
class Reuse:
    """One operation on one engine, in elements."""

    operands: tuple[Operand, ...]
    outputs: int
    """Results that are written once, when they are finished."""
    first: int
    """Operands without which the engine does not start: those of its first step, and the weights that go before."""
    last: int
    """Results of its last step, which leave after it."""
    starts: int = 1
    """How often it starts so, with other weights."""


def rereading(reads: int, *points: tuple[int, int]) -> Operand:
    """An operand that is read so often, by what would be read with so many elements kept: (kept, reads).

    Between two points a part of the way is kept, so only those count that no such mixture beats.
    """
    savings: list[Saving] = []
    at, now = 0, reads
    while True:
        best: tuple[float, int, int] | None = None
        for kept, left in points:
            if kept > at and left < now:
                worth = (now - left) / (kept - at)
                if best is None or (worth, kept) > best[:2]:
                    best = (worth, kept, left)
        if best is None:
            return Operand(reads, 0, tuple(savings))
        savings.append(Saving(best[1] - at, now - best[2], 0))
        at, now = best[1:]


def crossings(operands: Sequence[Operand], room: int) -> tuple[list[Crossing], int]:
    """What crosses with room for so many elements, given first to what saves most for it; and the room left over."""
    order = sorted(
        ((saving, place) for place, operand in enumerate(operands) for saving in operand.savings),
        key=lambda one: -one[0].worth,
    )
    reads = [operand.reads for operand in operands]
    writes = [operand.writes for operand in operands]
    for saving, place in order:
        if not room:
            break
        kept = min(room, saving.kept)
        reads[place] -= saving.reads * kept // saving.kept
        writes[place] -= saving.writes * kept // saving.kept
        room -= kept
    return [Crossing(*one) for one in zip(reads, writes, strict=True)], room


def reuse_of(
    engine: EngineDescription,
    shape: MatrixProduct | Convolution,
    mapping: dict[str, Any],
    result: Result,
    operation: Operation | None = None,
) -> Reuse:
    """How this engine goes over the operands of a product or a convolution under this mapping.

    `operation` tells sparse engines how many elements are not zero; without it operands count as full.
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
    return _merging(engine, sizes, result)


def partial_sums(reads: int, writes: int, kept: int) -> Operand:
    """Sums that are written and read again; while they wait, so many elements of them."""
    if not reads and not writes:
        return Operand(0)
    return Operand(reads, writes, (Saving(max(1, kept), reads, writes),))


@lru_cache(maxsize=1 << 14)
def distinct_inputs(shape: Convolution) -> int:
    """Elements of the image that some window covers; padding is none."""
    outputs = shape.outputs
    covered = [
        _covered(side, size, stride, padding, dilation, count)
        for side, size, stride, padding, dilation, count in zip(
            (shape.X, shape.Y), (shape.R, shape.S), shape.stride, shape.padding, shape.dilation, outputs, strict=True
        )
    ]
    return shape.N * shape.C * covered[0] * covered[1]


def _covered(side: int, size: int, stride: int, padding: int, dilation: int, windows: int) -> int:
    """Positions of one side under `windows` windows of `size` taps."""
    places = (np.arange(windows)[:, None] * stride + np.arange(size) * dilation - padding).ravel()
    hit = np.zeros(side, dtype=bool)
    hit[places[(places >= 0) & (places < side)]] = True
    return int(np.count_nonzero(hit))


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

    def lines(self, windows: int) -> int:
        """Elements of the image under so many windows that follow each other, whole rows."""
        image = self.image
        if image is None:
            return windows * self.k
        rows, columns = image.outputs
        spanned = min(rows, -(-(windows - 1) // columns) + 1)
        high = min(image.X, (spanned - 1) * image.stride[0] + image.dilation[0] * (image.R - 1) + 1)
        return high * image.Y * (image.C // image.G)


def _direct(shape: Convolution, tile: dict[str, int], result: Result) -> Reuse:
    """Flexible dense, a convolution itself. Batches outside, then groups, filters, windows: weights come again for
    every batch, inputs for every block of filters, and where windows overlap."""
    images, groups = -(-shape.N // tile["T_N"]), -(-shape.G // tile["T_G"])
    blocks = -(-(shape.K // shape.G) // tile["T_K"])
    channels, taps = shape.C // shape.G, shape.R * shape.S
    weights, inputs = shape.K * channels * taps, distinct_inputs(shape)
    high = min(shape.X, (tile["T_X_"] - 1) * shape.stride[0] + shape.R)
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


def _blocks(sizes: _Sizes, tile: dict[str, int], result: Result) -> Reuse:
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


def _mesh(sizes: _Sizes, tile: dict[str, int], result: Result) -> Reuse:
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
    engine: EngineDescription, sizes: _Sizes, mapping: dict[str, Any], result: Result, filters_first: bool
) -> Reuse:
    """Bitmap sparse. What stays in the multipliers is read once, the other matrix again for every filling of them.
    Sums of a vector that is too long for them wait for its next piece, one for each vector that streams."""
    weights_stay = filters_first == (mapping["dataflow"] == STATIONARY_ROWS)
    stays, streams = (sizes.weights, sizes.inputs) if weights_stay else (sizes.inputs, sizes.weights)
    vectors = sizes.m if weights_stay else sizes.n
    operands = (
        _operand(result.weight_reads, stays, (sizes.one(stays), stays)),
        _operand(result.input_reads, streams, (sizes.one(streams), streams)),
        partial_sums(result.psum_reads, max(0, result.writes - sizes.outputs), vectors),
    )
    multipliers = engine.hardware.multipliers
    return Reuse(operands, min(sizes.outputs, result.writes), multipliers + sizes.k, multipliers)


def _rows(sizes: _Sizes, mapping: dict[str, Any], result: Result) -> Reuse:
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
        merged_sums(engine, result, sizes.one(result.writes) if outer else pieces),
    )
    return Reuse(operands, finished(engine, result), 2 * multipliers, multipliers)


def merged_sums(engine: EngineDescription, result: Result, kept: int) -> Operand:
    """Partial results of the engines that merge, all of which they write and read again."""
    return partial_sums(result.psum_reads, result.writes, min(kept, max(1, result.writes)))


def finished(engine: EngineDescription, result: Result) -> int:
    """Elements that leave the merging tree for good; they go past the buffer and are not among an engine's writes."""
    again = result.writes - result.multiplications if engine.kind == "outer_product" else result.writes
    return result.counters["CollectionBus"]["FIFO"]["PUSH"] - again


def _operand(reads: int, least: int, *points: tuple[int, int]) -> Operand:
    """Never less than what must cross, never more than the engine reads."""
    least = min(least, reads)
    return rereading(reads, *((max(1, kept), min(reads, max(least, left))) for kept, left in points))
