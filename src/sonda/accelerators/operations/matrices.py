"""Zeros of an operation's operands as matrices, a convolution's inputs unfolded into its windows."""

from __future__ import annotations

import numpy as np

from sonda.accelerators.operations.program import Bags, ConvolutionShape, Operation, ZeroPattern
from sonda.record.errors import SondaError

MOST_PATTERN = 1 << 31
"""Elements of an operand that is unpacked to be looked at."""


def matrices_of(operation: Operation) -> tuple[np.ndarray, np.ndarray]:
    """Patterns of the inputs (count x m x k) and of the weights (count x n x k) as booleans."""
    if operation.inputs is None or operation.weights is None:
        raise SondaError(f"the zeros of {operation.name} are not known", "capture the model with its values")
    shape = operation.shape
    inputs, weights = operation.inputs.bits(), operation.weights.bits()
    if not isinstance(shape, ConvolutionShape):
        return inputs, weights
    product = shape.product()
    if product.m * product.k * product.count > MOST_PATTERN:
        raise SondaError(
            f"the convolution has {product.m * product.k * product.count} operands as a matrix product, more than "
            f"{MOST_PATTERN}",
            "use a smaller --batch or image",
        )
    return unfold(inputs, shape), weights.reshape(product.count, product.n, product.k)


def unfold(inputs: np.ndarray, shape: ConvolutionShape) -> np.ndarray:
    """Groups x windows x taps of an N x C x X x Y pattern; a tap on the padding is zero."""
    (top, left), (high, wide) = shape.padding, shape.dilation
    padded = np.pad(inputs, ((0, 0), (0, 0), (top, top), (left, left)))
    reach = (high * (shape.R - 1) + 1, wide * (shape.S - 1) + 1)
    windows = np.lib.stride_tricks.sliding_window_view(padded, reach, axis=(2, 3))
    windows = windows[:, :, :: shape.stride[0], :: shape.stride[1], ::high, ::wide]
    grouped = windows.reshape(shape.N, shape.G, shape.C // shape.G, *windows.shape[2:])
    product = shape.product()
    return grouped.transpose(1, 0, 3, 4, 2, 5, 6).reshape(product.count, product.m, product.k)


def products_of_entries(operation: Operation, by_weights: bool) -> int:
    """Every entry that is not zero, of the weights or of the inputs, times the vectors of the other operand."""
    shape = operation.shape
    assert not isinstance(shape, Bags), "bags have no zeros of their own"
    assert operation.inputs is not None, "an engine that leaves zeros out has seen them"
    assert operation.weights is not None, "an engine that leaves zeros out has seen them"
    if isinstance(shape, ConvolutionShape):
        product = shape.product()
        if by_weights:
            return _entries(operation.weights) * product.m
        return _unfolded_entries(operation.inputs, shape) * product.n
    return _entries(operation.weights) * shape.m if by_weights else _entries(operation.inputs) * shape.n


def _entries(pattern: ZeroPattern) -> int:
    return int(np.prod(pattern.shape, dtype=np.int64)) - pattern.zeros


def _unfolded_entries(inputs: ZeroPattern, shape: ConvolutionShape) -> int:
    """Entries of all windows: every pixel that is not zero, as often as windows cover it."""
    pixels = inputs.bits().sum(axis=(0, 1), dtype=np.int64)
    rows, columns = shape.coverage()
    return int(rows @ pixels @ columns)
