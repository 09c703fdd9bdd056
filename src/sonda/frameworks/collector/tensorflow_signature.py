"""The signature of a trace of TensorFlow's: what a graph is made for, argument by argument."""

from __future__ import annotations

from typing import Any

from .traces import nested


def signature_of(function_type: Any) -> dict:
    """What a trace is for, from the types of its arguments."""
    found: dict = {}
    for name, parameter in function_type.parameters.items():
        for inner, kind in nested(str(name), parameter.type_constraint, _parts):
            found[inner] = _described(kind)
    return found


def _parts(kind: Any) -> Any:
    return getattr(kind, "components", None) or getattr(kind, "mapping", None)


def _described(kind: Any) -> tuple:
    if hasattr(kind, "value"):
        return ("python", repr(kind.value))
    if hasattr(kind, "shape") and hasattr(kind, "dtype"):
        known = kind.shape.rank is not None
        shape = ", ".join("?" if size is None else str(size) for size in kind.shape) if known else "..."
        return ("tensor", f"{kind.dtype.name}[{shape}]")
    return ("object", str(kind))
