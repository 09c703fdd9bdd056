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

from sonda.accelerators.engines.result import Count
from sonda.accelerators.memory.lookups import RowStream
from sonda.accelerators.operations.program import ConvolutionShape, MatrixProduct, Operation

LARGEST = 1 << 62
"""Products of counts below it are safe in 64 bits."""


class Accesses(NamedTuple):
    """What an engine reads and writes, as its `Result` counts it; arrays where it is of many mappings."""

    weight_reads: Count
    input_reads: Count
    psum_reads: Count
    writes: Count


class Saving(NamedTuple):
    """Elements that stay in the buffer, and the crossings that this saves."""

    kept: Count
    reads: Count
    writes: Count


class Operand(NamedTuple):
    """Elements that cross where nothing is kept, and the savings, the best first. Each adds to those before it."""

    reads: Count
    writes: Count = 0
    savings: tuple[Saving, ...] = ()


class Crossing(NamedTuple):
    """Elements of an operand that cross."""

    reads: Count
    writes: Count


class TableRows(NamedTuple):
    """Rows of an embedding table that are looked up through the buffer."""

    stream: RowStream
    columns: Count
    """Taken at a time."""


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
    table: TableRows | None = None
    """What is looked up beside the operands."""


def rereading(reads: Count, *points: tuple[Count, Count]) -> Operand:
    """An operand that is read `reads` times where nothing is kept.

    Each point (kept, reads) says how much is read with so many elements kept.

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
    """What crosses of each operand with room for so many elements, and the room left over.

    Room goes first to what saves most for it.
    """
    savings = [(place, saving) for place, operand in enumerate(operands) for saving in operand.savings]
    if not savings:
        return [Crossing(operand.reads, operand.writes) for operand in operands], room
    shape = np.broadcast_shapes(np.shape(room), *(np.shape(count) for _, saving in savings for count in saving))
    kept, *saved = np.stack(
        [np.broadcast_to(np.array(count, np.int64), shape)
         for column in zip(*(saving for _, saving in savings), strict=True) for count in column]
    ).reshape(3, len(savings), *shape)  # fmt: skip
    order = np.argsort(-(saved[0] + saved[1]) / np.maximum(kept, 1), axis=0, kind="stable")
    ordered = np.take_along_axis(kept, order, axis=0)
    before = np.cumsum(ordered, axis=0) - ordered
    taken = np.empty_like(kept)
    np.put_along_axis(taken, order, np.clip(room - before, 0, ordered), axis=0)
    reads, writes = ([getattr(operand, name) for operand in operands] for name in ("reads", "writes"))
    for crossing, counts in ((reads, saved[0]), (writes, saved[1])):
        for (place, _), share in zip(savings, _part(counts, taken, kept), strict=True):
            crossing[place] = crossing[place] - share
    return [Crossing(*counts) for counts in zip(reads, writes, strict=True)], np.maximum(room - kept.sum(axis=0), 0)


def _part(whole: NDArray[np.int64], taken: NDArray[np.int64], kept: NDArray[np.int64]) -> NDArray[np.int64]:
    """The part of the whole that belongs to what is taken of what would be kept, rounded down; never beyond 64 bits."""
    some = taken < kept
    divisor, part = np.where(some, kept, 1), np.where(some, taken, 0)
    if int(divisor.max()) * int(part.max()) >= LARGEST:
        divisor, part, whole = (values.astype(object) for values in (divisor, part, whole))
    share = whole // divisor * part + whole % divisor * part // divisor
    return np.where(some, share, whole).astype(np.int64)


def partial_sums(reads: Count, writes: Count, kept: Count) -> Operand:
    """Sums that are written and read again; while they wait, so many elements of them."""
    some = (reads > 0) | (writes > 0)
    return Operand(reads, writes, (Saving(some * np.maximum(1, kept), reads, writes),))


@lru_cache(maxsize=1 << 14)
def distinct_inputs(shape: ConvolutionShape) -> int:
    """Elements of the image that some window covers; padding is none."""
    rows, columns = map(np.count_nonzero, shape.coverage())
    return shape.N * shape.C * int(rows) * int(columns)


class ProductSizes(NamedTuple):
    """Sizes of a product, or of a convolution as a product.

    `inputs` and `weights` are the elements that must cross at least.
    """

    m: int
    n: int
    k: int
    products: int
    """How many products of these sizes follow each other."""
    inputs: int
    weights: int
    image: ConvolutionShape | None

    @staticmethod
    def from_shape(shape: MatrixProduct | ConvolutionShape, operation: Operation | None) -> ProductSizes:
        """The sizes of a shape. The zeros of `operation` are left out where it is given."""
        image = shape if isinstance(shape, ConvolutionShape) else None
        product = shape.product() if isinstance(shape, ConvolutionShape) else shape
        m, n, k, count = product.m, product.n, product.k, product.count
        inputs = m * k * count if image is None else distinct_inputs(image)
        weights = n * k * count
        if operation is not None:
            # Zeros that no window covers are counted off as well; never more than there are.
            if operation.inputs is not None:
                inputs = min(inputs, int(np.prod(operation.inputs.shape, dtype=np.int64)) - operation.inputs.zeros)
            if operation.weights is not None:
                weights = min(weights, int(np.prod(operation.weights.shape, dtype=np.int64)) - operation.weights.zeros)
        return ProductSizes(m, n, k, count, inputs, weights, image)

    @property
    def outputs(self) -> int:
        """Elements that all products give."""
        return self.m * self.n * self.products

    def share_of_one(self, elements: int) -> int:
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


def reread_operand(reads: Count, least: int, *points: tuple[Count, Count]) -> Operand:
    """As `rereading`, never less than the elements that must cross, never more than the engine reads."""
    fewest = np.minimum(least, reads)
    return rereading(
        reads, *((np.maximum(1, kept), np.minimum(reads, np.maximum(fewest, left))) for kept, left in points)
    )
