"""The shapes with which jitted functions are called: the code that XLA made for one shape tells nothing of another.

If JAX compiled a function once, all its calls have the same shapes and are not looked at. Otherwise every call is
looked at before it begins. Only changes of shapes are kept.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

# ---- Arguments and results of jitted functions ----------------------------------------------------------------------

LARGE = 2
"""The least number of axes of arrays that are compared: scalars and vectors have the shapes of many others."""


def arguments_of(fun: Any, kwargs: dict) -> tuple:
    """Names of a function's positional arguments, and of its static ones, whose values are compiled in.

    `kwargs` are those of `jax.jit`. The names are () where the function does not tell. A method is bound to its object.
    """
    code = getattr(getattr(fun, "__wrapped__", fun), "__code__", None)
    bound = int(hasattr(fun, "__self__"))
    names = tuple(code.co_varnames[bound : code.co_argcount]) if code is not None else ()
    places = _as_tuple(kwargs.get("static_argnums"), int)
    static = {names[place] for place in places if -len(names) <= place < len(names)}
    return names, static.union(_as_tuple(kwargs.get("static_argnames"), str))


def _as_tuple(value: Any, single: type) -> tuple:
    if value is None:
        return ()
    return (value,) if isinstance(value, single) else tuple(value)


def signature_of(tree: Any, names: tuple, static: set, args: tuple, kwargs: dict) -> dict:
    """What JAX compiles for: shapes and types of arrays, values of static arguments; `tree` is `jax.tree_util`."""
    signature: dict = {}
    further = [f"argument {number + 1}" for number in range(len(names), len(args))]
    for name, value in [*zip((*names, *further), args, strict=False), *kwargs.items()]:
        if name in static:
            signature[name] = ("python", repr(value)[:200])
            continue
        for path, leaf in tree.tree_flatten_with_path(value)[0]:
            shape, kind = getattr(leaf, "shape", ()), getattr(leaf, "dtype", type(leaf).__name__)
            signature[name + tree.keystr(path)] = ("tensor", f"{kind}[{', '.join(map(str, shape))}]")
    return signature


def shapes_of(tree: Any, values: Any) -> Counter:
    """How often each shape and type occurs among the larger arrays of these values."""
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


# ----------------------------------------------------------------------------------------------------------------------

MOST_CHANGES = 10_000
"""Changes that are kept of one function; where there are more, none is stated."""


class CallShapes:
    """Numbers the shapes of each function's calls, from 0 in the order of time."""

    def __init__(self, tree: Any) -> None:
        self.tree = tree
        """`jax.tree_util`."""
        self._compiled: dict = {}
        """By the place of a function in the program: keys that it was compiled for. JAX shares what it compiled among
        all functions that are made at one place."""
        self._numbers: dict = {}
        """By function: its keys with their numbers."""
        self._changes: dict = {}
        """By function: pairs of ns and the number of the shape that its calls have from then on."""

    def note_call(self, state: Any, arguments: tuple, begin: int, compiled: bool = False) -> None:
        """Note a call that begins at `begin`, ns; `compiled`: it has ended, and JAX compiled in it."""
        compiled_keys = self._compiled.setdefault(id(state.history), set())
        if not compiled and state.number in self._numbers and len(compiled_keys) < 2:
            return
        key = self._key(state.arguments, state.static, *arguments)
        if compiled:
            compiled_keys.add(key)
        numbers = self._numbers.setdefault(state.number, {})
        number = numbers.setdefault(key, len(numbers))
        changes = self._changes.setdefault(state.number, [])
        if (not changes or changes[-1][1] != number) and len(changes) <= MOST_CHANGES:
            changes.append((begin, number))

    def current(self, number: int) -> int:
        """The number of the shapes of the running call of a function."""
        changes = self._changes.get(number)
        return int(changes[-1][1]) if changes else 0

    def facts(self) -> dict:
        """The changes of every function that has several shapes; [] where there were too many."""
        return {
            str(number): changes if len(changes) <= MOST_CHANGES else []
            for number, changes in self._changes.items()
            if len(self._numbers[number]) > 1
        }

    def _key(self, names: tuple, static: set, args: tuple, kwargs: dict) -> Any:
        """A key that is equal for calls for which JAX uses the same code; None where there is none."""
        further = range(len(names), len(args))
        named = [*zip((*names, *further), args, strict=False), *kwargs.items()]
        try:
            fixed = tuple(repr(value)[:200] for name, value in named if name in static)
            leaves, structure = self.tree.tree_flatten([value for name, value in named if name not in static])
            sides = tuple((getattr(leaf, "shape", ()), getattr(leaf, "dtype", type(leaf))) for leaf in leaves)
            key = (fixed, structure, sides)
            hash(key)
        except Exception:  # of an argument that cannot be written, or is no tree
            return None
        return key
