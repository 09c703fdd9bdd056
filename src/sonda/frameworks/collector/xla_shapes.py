"""Shapes that XLA has compiled a function for: it compiles anew for others, also where the graph stays the same.

A `tf.function(jit_compile=True)` whose graph takes any number of rows is traced once, and compiled for each number.
Nothing tells when that happens; that its tensors have other shapes than ever before does.
"""

from __future__ import annotations

from typing import Any

from .traces import nested

MOST_SHAPES = 10_000
"""Of one function that are remembered."""


class XlaShapes:
    """`anew` is asked before each outermost call of a function that XLA compiles."""

    def __init__(self, nest: Any) -> None:
        self._flatten = nest.flatten
        self._seen: dict = {}
        """By the number of a function: its shapes so far."""

    def anew(self, number: int, function: Any, args: tuple, kwargs: dict) -> dict | None:
        """The signature of a call whose tensors have shapes that this function was not called with yet, else None."""
        try:
            leaves = self._flatten((args, kwargs), expand_composites=True)
            shapes = hash(tuple(_shape(leaf) for leaf in leaves))
            seen = self._seen.setdefault(number, set())
            if shapes in seen:
                return None
            if len(seen) < MOST_SHAPES:
                seen.add(shapes)
            return _signature(function, args, kwargs)
        except Exception:  # of an argument that is no nest: TensorFlow will say so itself
            return None


def _shape(leaf: Any) -> Any:
    shape = getattr(leaf, "shape", None)
    return None if shape is None else tuple(shape)


def _signature(function: Any, args: tuple, kwargs: dict) -> dict:
    """Names and shapes of the tensors, named as a trace names them."""
    names = list(function.function_type.parameters)
    if getattr(function.python_function, "__self__", None) is not None and names[:1] == ["self"]:
        del names[0]
    found: dict = {}
    for name, value in [*zip(names, args, strict=False), *kwargs.items()]:
        for inner, leaf in nested(str(name), value):
            if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
                kind = getattr(leaf.dtype, "name", str(leaf.dtype))
                found[inner] = ("tensor", f"{kind}[{', '.join(map(str, leaf.shape))}]")
    return found
