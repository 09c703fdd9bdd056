"""The products that an operation asks an engine for, without those that only fill a tile up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sonda.accelerators.engine_description import DENSE
from sonda.accelerators.hardware import DATAFLOWS
from sonda.accelerators.operation import Bags, Convolution, Operation, ZeroPattern
from sonda.accelerators.result import Result


def useful_products(kind: str, operation: Operation, mapping: Mapping[str, Any], result: Result) -> int:
    """Of an operation on an engine of this kind, which counted `result`.

    On a dense engine all products of the operation; by compressed rows and bitmaps, every entry of the operand that is
    compressed or stays times the vectors of the other; on merging engines, which fill nothing up, those that the engine
    counts.
    """
    if kind in DENSE:
        return operation.shape.multiplications
    if kind not in ("compressed_row", "bitmap_sparse"):
        return result.multiplications
    shape = operation.shape
    if isinstance(shape, Bags):
        return _of_bags(shape, mapping) if kind == "bitmap_sparse" else shape.multiplications
    assert operation.inputs is not None, "an engine of compressed rows has seen the zeros"
    assert operation.weights is not None, "an engine of compressed rows has seen the zeros"
    product = shape.product() if isinstance(shape, Convolution) else shape
    if _weights(kind, operation, mapping):
        return _entries(operation.weights) * product.m
    if isinstance(shape, Convolution):
        return _unfolded_entries(operation.inputs, shape) * product.n
    return _entries(operation.inputs) * product.n


def _weights(kind: str, operation: Operation, mapping: Mapping[str, Any]) -> bool:
    """Whether it is the weights that are compressed or stay; on bitmaps a convolution's are the first matrix."""
    if kind == "compressed_row":
        return bool(mapping["rows"] == "weights by rows")
    return (mapping["dataflow"] == DATAFLOWS[0]) == (operation.kind == "convolution")


def _of_bags(bags: Bags, mapping: Mapping[str, Any]) -> int:
    """Of bags on bitmaps: the indices stay, each distinct one times the table's columns, or the table stays."""
    if mapping["dataflow"] == DATAFLOWS[0]:
        return len(bags.distinct.indices) * bags.columns
    return bags.columns * bags.distinct.columns * (len(bags.distinct.pointer) - 1)


def _entries(pattern: ZeroPattern) -> int:
    return int(np.prod(pattern.shape, dtype=np.int64)) - pattern.zeros


def _unfolded_entries(inputs: ZeroPattern, shape: Convolution) -> int:
    """Entries of all windows: every pixel that is not zero, as often as windows cover it."""
    pixels = inputs.bits().sum(axis=(0, 1), dtype=np.int64)
    rows, columns = shape.coverage()
    return int(rows @ pixels @ columns)
