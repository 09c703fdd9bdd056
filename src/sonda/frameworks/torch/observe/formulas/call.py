"""One call of an operation as the formulas see it: arguments by position or name, tensors, the memory they cover.

Everything here is duck-typed over tensors and imports only the standard library. It runs no operation of the framework,
except to read the sizes of sparse and nested tensors.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

Region = tuple[Any, ...]
"""Identifies the memory that a tensor covers: two tensors with equal regions read the same bytes."""


class OperationCall:
    """An operation with its arguments and its result. The dispatcher drops arguments that equal their default."""

    __slots__ = ("args", "kwargs", "op", "out")

    def __init__(self, op: str, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        self.op = op
        self.args = args
        self.kwargs = kwargs
        self.out = out

    def arg(self, position: int, name: str, default: Any = None) -> Any:
        """The argument at `position` of the schema, or named `name`, or `default` where it was left out."""
        if 0 <= position < len(self.args):
            return self.args[position]
        return self.kwargs.get(name, default)

    def outputs(self) -> list[Any]:
        """The tensors of the result, in order."""
        return list(tensors_in(self.out))

    @property
    def first(self) -> Any:
        """The first tensor of the result; the first argument where an in-place operation returned nothing."""
        return next(tensors_in(self.out), None) if self.out is not None else self.args[0]


def is_tensor(value: Any) -> bool:
    """True for anything whose elements have a size, as tensors have."""
    # Looked up in the type: a nested tensor raises when its shape is read.
    return hasattr(type(value), "element_size")


def tensors_in(value: Any) -> Iterator[Any]:
    """Every tensor in `value`, looking into lists, tuples and dictionaries."""
    if isinstance(value, list | tuple):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)
    elif is_tensor(value):
        yield value


def numel(tensor: Any) -> int:
    """Number of elements of a tensor; for a sparse tensor, of its stored values."""
    if getattr(tensor, "is_sparse", False):
        return int(tensor._values().numel())
    return int(tensor.numel())


def is_float(tensor: Any) -> bool:
    """True for floating-point, complex and quantised elements; False for integers."""
    return bool(tensor.dtype.is_floating_point or is_complex_or_quantised(tensor))


def is_complex_or_quantised(tensor: Any) -> bool:
    """True for complex and quantised tensors, whose arithmetic the formulas do not describe."""
    return bool(tensor.dtype.is_complex or getattr(tensor, "is_quantized", False))


def is_sparse(value: Any) -> bool:
    """True for a sparse tensor, by coordinates or by compressed rows or columns."""
    return is_tensor(value) and str(getattr(value, "layout", "")).startswith("torch.sparse")


def storage_key(tensor: Any) -> Any:
    """Identifies the storage of a tensor; the tensor itself where it has no storage."""
    try:
        return tensor.untyped_storage()._cdata
    except Exception:  # sparse, nested and wrapper tensors raise several kinds
        return ("tensor", id(tensor))


def region(tensor: Any) -> tuple[Region, int]:
    """The memory that a tensor covers, and its size in bytes.

    Dimensions of stride 0 (broadcast) and of size 1 take no memory. Adjacent dimensions are joined, so a matrix, its
    transpose and its flat view are one region. Overlapping windows count the memory under them once.
    """
    if getattr(tensor, "is_sparse", False):
        indices, values = tensor._indices(), tensor._values()
        size = indices.numel() * indices.element_size() + values.numel() * values.element_size()
        return (("sparse", id(tensor)), int(size))
    try:
        shape, strides = tuple(tensor.shape), tensor.stride()
    except Exception:  # nested tensors have no shape; opaque ones no strides
        return (("opaque", id(tensor)), int(tensor.numel()) * int(tensor.element_size()))
    if 0 in shape:
        return (("empty",), 0)
    joined: list[tuple[int, int]] = []
    for stride, size in sorted((abs(st), sz) for sz, st in zip(shape, strides, strict=True) if sz > 1 and st != 0):
        if joined and stride == joined[-1][0] * joined[-1][1]:
            joined[-1] = (joined[-1][0], joined[-1][1] * size)
        else:
            joined.append((stride, size))
    elements = prod(size for _, size in joined)
    span = 1 + sum((size - 1) * stride for stride, size in joined)
    key = (storage_key(tensor), tensor.storage_offset(), tensor.element_size(), *joined)
    return key, min(elements, span) * int(tensor.element_size())


def nbytes(*tensors: Any) -> int:
    """Bytes of the distinct regions among `tensors` (None and nested lists allowed)."""
    return sum(dict(region(tensor) for tensor in tensors_in(tensors)).values())
