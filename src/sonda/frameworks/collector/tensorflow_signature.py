"""The signature of a trace of TensorFlow's: what a graph is made for, argument by argument."""

from __future__ import annotations

from typing import Any


def signature_of(function_type: Any) -> dict:
    """What a trace is for, from the types of its arguments."""
    found: dict = {}
    for name, parameter in function_type.parameters.items():
        _describe(str(name), parameter.type_constraint, found)
    return found


def _describe(name: str, kind: Any, found: dict) -> None:
    """Nested arguments one by one: `x[0]`, `batch['image']`."""
    parts = getattr(kind, "components", None) or getattr(kind, "mapping", None)
    if isinstance(parts, dict):
        for key, part in parts.items():
            _describe(f"{name}[{key!r}]", part, found)
    elif isinstance(parts, (tuple, list)):
        for number, part in enumerate(parts):
            _describe(f"{name}[{number}]", part, found)
    elif hasattr(kind, "value"):
        found[name] = ("python", repr(kind.value))
    elif hasattr(kind, "shape") and hasattr(kind, "dtype"):
        known = kind.shape.rank is not None
        shape = ", ".join("?" if size is None else str(size) for size in kind.shape) if known else "..."
        found[name] = ("tensor", f"{kind.dtype.name}[{shape}]")
    else:
        found[name] = ("object", str(kind))
