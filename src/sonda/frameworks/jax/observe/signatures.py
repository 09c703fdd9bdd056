"""Which shapes the calls of jitted functions have: what XLA made for one says nothing of the work for another.

Of a function that JAX compiled once all calls have one shape, and no call is asked. Of others each call is, before it
begins; kept is only where shapes change.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

# ---- Arguments and results of jitted functions: what JAX compiles for, and which arrays look like those of ----------

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


# ----------------------------------------------------------------------------------------------------------------------

MOST_CHANGES = 10_000
"""Of one function; of one that changes more often nothing is known."""


class Shapes:
    """Numbers of shapes, from 0 in the order in which they come, function by function."""

    def __init__(self, tree: Any) -> None:
        self.tree = tree
        """`jax.tree_util`."""
        self._compiled: dict = {}
        """By the place of a function in the program, keys that it was compiled for: those that JAX has, whichever of
        the functions that were made there it was given."""
        self._numbers: dict = {}
        """By function: its keys with their numbers."""
        self._changes: dict = {}
        """By function: pairs of ns and the number of the shape that its calls have from then on."""

    def called(self, known: Any, given: tuple, begin: int, compiled: bool = False) -> None:
        """A call begins at `begin` ns, or has begun then and JAX `compiled` for it."""
        made = self._compiled.setdefault(id(known.about), set())
        if not compiled and known.number in self._numbers and len(made) < 2:
            return
        key = self._key(known.arguments, known.static, *given)
        if compiled:
            made.add(key)
        numbers = self._numbers.setdefault(known.number, {})
        number = numbers.setdefault(key, len(numbers))
        changes = self._changes.setdefault(known.number, [])
        if (not changes or changes[-1][1] != number) and len(changes) <= MOST_CHANGES:
            changes.append((begin, number))

    def now(self, number: int) -> int:
        """The number of the shape of the present call of a function."""
        changes = self._changes.get(number)
        return int(changes[-1][1]) if changes else 0

    def facts(self) -> dict:
        """Changes of functions that have several shapes; [] where they were too many."""
        return {
            str(number): changes if len(changes) <= MOST_CHANGES else []
            for number, changes in self._changes.items()
            if len(self._numbers[number]) > 1
        }

    def _key(self, names: tuple, static: set, args: tuple, kwargs: dict) -> Any:
        """Equal for calls that JAX compiles the same for."""
        further = range(len(names), len(args))
        named = [*zip((*names, *further), args, strict=False), *kwargs.items()]
        try:
            fixed = tuple(repr(value)[:200] for name, value in named if name in static)
            leaves, structure = self.tree.tree_flatten([value for name, value in named if name not in static])
            sides = tuple((getattr(one, "shape", ()), getattr(one, "dtype", type(one))) for one in leaves)
            key = (fixed, structure, sides)
            hash(key)
        except Exception:  # of an argument that cannot be written, or is no tree
            return None
        return key
