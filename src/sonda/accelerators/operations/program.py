"""Operations as engines take them: products of matrices, convolutions and embedding bags, with their zeros.

A `ModelProgram` is what one inference step of a model does: its calls of modules, the operations that an engine may
take, and, by name, all that none takes. Nothing here needs a framework.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from sonda.accelerators.operations.layer import StonneLayer
from sonda.accelerators.operations.patterns import CompressedRows, pointer_of


@dataclass(frozen=True)
class MatrixProduct:
    """`count` products of an m x k by a k x n matrix, one after the other."""

    m: int
    n: int
    k: int
    count: int = 1

    @property
    def multiplications(self) -> int:
        return self.m * self.n * self.k * self.count

    @property
    def flops(self) -> int:
        return 2 * self.multiplications


@dataclass(frozen=True)
class ConvolutionShape:
    """A convolution over one or two dimensions, in STONNE's letters; X and Y are the input's sides without padding.

    One dimension is a convolution of rows of height 1. C and K are totals over all groups.
    """

    R: int
    S: int
    C: int
    K: int
    G: int
    N: int
    X: int
    Y: int
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)

    @property
    def outputs(self) -> tuple[int, int]:
        """Rows and columns of the output."""
        rows, columns = (
            (side + 2 * padding - dilation * (size - 1) - 1) // stride + 1
            for side, size, stride, padding, dilation in zip(
                (self.X, self.Y), (self.R, self.S), self.stride, self.padding, self.dilation, strict=True
            )
        )
        return rows, columns

    @property
    def multiplications(self) -> int:
        rows, columns = self.outputs
        return self.N * self.K * rows * columns * (self.C // self.G) * self.R * self.S

    @property
    def flops(self) -> int:
        return 2 * self.multiplications

    def coverage(self) -> tuple[np.ndarray, np.ndarray]:
        """How many windows cover each row and each column of the input; padding is none of them."""
        rows, columns = (
            _coverage(*side)
            for side in zip(
                (self.X, self.Y), (self.R, self.S), self.stride, self.padding, self.dilation, self.outputs, strict=True
            )
        )
        return rows, columns

    def layer(self) -> StonneLayer | None:
        """The layer that an engine computes directly, padding included in the input; None where it cannot.

        A direct engine has one stride for both sides and no dilation.
        """
        if self.dilation != (1, 1):
            return None
        # A side with one output has no stride to speak of.
        stride = self.stride[0] if self.outputs[0] > 1 else self.stride[1]
        (rows, columns), (top, left) = (self.X, self.Y), self.padding
        layer = StonneLayer(self.R, self.S, self.C, self.K, self.G, self.N, rows + 2 * top, columns + 2 * left, stride)
        return layer if (layer.rows, layer.columns) == self.outputs else None

    def product(self) -> MatrixProduct:
        """The same as a product of matrices, one for each group: windows x taps by taps x filters."""
        rows, columns = self.outputs
        return MatrixProduct(
            m=self.N * rows * columns,
            n=self.K // self.G,
            k=self.C // self.G * self.R * self.S,
            count=self.G,
        )


def _coverage(side: int, size: int, stride: int, padding: int, dilation: int, windows: int) -> np.ndarray:
    places = (np.arange(windows)[:, None] * stride + np.arange(size) * dilation - padding).ravel()
    return np.bincount(places[(places >= 0) & (places < side)], minlength=side)


@dataclass(frozen=True, eq=False)
class Bags:
    """Sums of rows of a table: a matrix of ones and zeros, a row for each bag, times the table."""

    sizes: np.ndarray
    """Rows that each bag sums, int64."""
    indices: np.ndarray
    """These rows, bag after bag, int64."""
    rows: int
    """Of the table; nothing is allocated for them."""
    columns: int

    @property
    def multiplications(self) -> int:
        return len(self.indices) * self.columns

    @property
    def flops(self) -> int:
        """An addition for every element looked up."""
        return len(self.indices) * self.columns

    @cached_property
    def distinct(self) -> CompressedRows:
        """The matrix of ones and zeros by compressed rows; a row named twice in a bag is one entry."""
        bag = np.repeat(np.arange(len(self.sizes), dtype=np.int64), self.sizes)
        order = np.lexsort((self.indices, bag))
        bag, indices = bag[order], self.indices[order].astype(np.int64)
        first = np.ones(len(indices), dtype=bool)
        first[1:] = (bag[1:] != bag[:-1]) | (indices[1:] != indices[:-1])
        sizes = np.bincount(bag[first], minlength=len(self.sizes))
        return CompressedRows(self.rows, pointer_of(sizes), indices[first])


@dataclass(frozen=True, eq=False)
class ZeroPattern:
    """Where an operand is not zero, a bit for each element in the order of its shape."""

    shape: tuple[int, ...]
    packed: np.ndarray
    zeros: int

    @staticmethod
    def from_array(nonzero: np.ndarray) -> ZeroPattern:
        """The pattern of a boolean array."""
        return ZeroPattern(nonzero.shape, np.packbits(nonzero), int(nonzero.size - np.count_nonzero(nonzero)))

    def bits(self) -> np.ndarray:
        """The boolean array again."""
        size = int(np.prod(self.shape, dtype=np.int64))
        return np.unpackbits(self.packed, count=size).reshape(self.shape).astype(bool)

    @property
    def sparsity(self) -> float:
        """The part that is zero."""
        size = int(np.prod(self.shape, dtype=np.int64))
        return self.zeros / size if size else 0.0


@dataclass(frozen=True, eq=False)
class Operation:
    """Something that an engine may take."""

    kind: str
    """One of `sonda.accelerators.description.engine.OPERATIONS`."""
    name: str
    """As the framework calls it."""
    caller: int
    """Row of the call that makes it, in `ModelProgram.calls`; -1 outside every module."""
    shape: MatrixProduct | ConvolutionShape | Bags
    inputs: ZeroPattern | None = None
    """Of a product count x m x k, of a convolution N x C x X x Y; None where it was not asked for."""
    weights: ZeroPattern | None = None
    """Of a product count x n x k (the second matrix transposed), of a convolution K x C/G x R x S."""


@dataclass(frozen=True)
class Call:
    """One call of a module."""

    path: str
    """Module path; '' is the model itself."""
    name: str
    """Class of the module."""
    number: int
    """Which call of that module, from 0."""
    caller: int
    """Row of the call around it, -1 for the outermost."""
    first: int
    """Operations made before it began."""
    phase: str = "forward"


@dataclass(frozen=True)
class ModelProgram:
    """One inference step, in its order."""

    calls: tuple[Call, ...]
    operations: tuple[Operation, ...]
    phases: tuple[str, ...]
    """The phase of each operation."""
    others: dict[tuple[int, str], int] = field(default_factory=dict)
    """What no engine can take: how often, by calling row and name. Views, which compute nothing, are not counted."""
    notes: tuple[str, ...] = ()
    """What is to be said of the model that it comes from."""

    def path(self, operation: Operation) -> str:
        """The module path of an operation."""
        return self.calls[operation.caller].path if operation.caller >= 0 else ""
