"""Arguments and results of jitted functions: what JAX compiles for, and which arrays look like those of others."""

from __future__ import annotations

from collections import Counter
from typing import Any

LARGE = 2
"""Axes of arrays that are compared: a scalar or a vector has the shape of many others."""


def arguments_of(fun: Any, kwargs: dict) -> tuple:
    """Names of a function's arguments that have a place, and of those whose values are compiled in.

    `kwargs` are those of `jax.jit`. () where the function does not tell. A method has its object already.
    """
    code = getattr(getattr(fun, "__wrapped__", fun), "__code__", None)
    given = int(hasattr(fun, "__self__"))
    names = tuple(code.co_varnames[given : code.co_argcount]) if code is not None else ()
    places = _several(kwargs.get("static_argnums"), int)
    static = {names[place] for place in places if -len(names) <= place < len(names)}
    return names, static.union(_several(kwargs.get("static_argnames"), str))


def _several(value: Any, one: type) -> tuple:
    if value is None:
        return ()
    return (value,) if isinstance(value, one) else tuple(value)


def signature_of(tree: Any, names: tuple, static: set, args: tuple, kwargs: dict) -> dict:
    """What JAX compiles for: shapes and types of arrays, values of static arguments. `tree` is `jax.tree_util`."""
    found: dict = {}
    further = [f"argument {number + 1}" for number in range(len(names), len(args))]
    for name, value in [*zip((*names, *further), args, strict=False), *kwargs.items()]:
        if name in static:
            found[name] = ("python", repr(value)[:200])
            continue
        for path, leaf in tree.tree_flatten_with_path(value)[0]:
            shape, kind = getattr(leaf, "shape", ()), getattr(leaf, "dtype", type(leaf).__name__)
            found[name + tree.keystr(path)] = ("tensor", f"{kind}[{', '.join(map(str, shape))}]")
    return found


def shapes_of(tree: Any, values: Any) -> Counter:
    """How often each shape and type is among the larger arrays of these."""
    leaves = tree.tree_leaves(values)
    return Counter((tuple(leaf.shape), str(leaf.dtype)) for leaf in leaves if len(getattr(leaf, "shape", ())) >= LARGE)


def size_of(shapes: Counter) -> int:
    """Elements of arrays of these shapes."""
    total = 0
    for (shape, _), count in shapes.items():
        elements = count
        for side in shape:
            elements *= side
        total += elements
    return total
