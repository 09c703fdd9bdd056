"""Shapes that XLA has compiled a function for: it compiles anew for others, also where the graph stays the same.

A `tf.function(jit_compile=True)` whose graph takes any number of rows is traced once, and compiled for each number.
Nothing tells when that happens; that its tensors have other shapes than ever before does.
"""

from __future__ import annotations

from typing import Any

from ...collector.traces import TracedFunction, flatten_arguments

# ---- The signature of a trace of TensorFlow's: what a graph is made for, argument by argument -----------------------


def signature_of(function_type: Any) -> dict:
    """What a trace is for, from the types of its arguments."""
    found: dict = {}
    for name, parameter in function_type.parameters.items():
        for inner, kind in flatten_arguments(str(name), parameter.type_constraint, _parts):
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


# ---- A call of a `tf.function` in which something is made: graphs by TensorFlow, a program by XLA -------------------


class Trace:
    """What is found out meanwhile."""

    def __init__(self) -> None:
        self.learns = False
        self.variables = False
        self.lasted = 0
        """ns, all graphs."""
        self.signature: dict = {}
        self.compiled: tuple = ()
        """Begin and end of everything that was made, as events."""


def made_in(
    about: TracedFunction, trace: Trace | None, shapes: dict | None, xla: Any, begin: int, end: int
) -> Trace | None:
    """What was made in a call from `begin` to `end`, ns; None where everything was there already.

    `trace`: of graphs; `shapes`: those that are new to a function that XLA compiles; `xla`: the recorder, of such a
    function. XLA compiles after the graphs are made and before it runs. The run counts for as long as the fastest one
    so far took; before there was one, nothing tells it from compiling.
    """
    if trace is None and shapes is None:
        about.fastest_ns = min(end - begin, about.fastest_ns or end)
        return None
    trace = trace or Trace()
    if xla:
        about.xla = True
        # What is compiled anew is the graph that was traced last, for other shapes.
        before = trace.signature or (about.signatures[-1] if about.signatures else {})
        trace.signature = {**before, **(shapes or {})}
        code = xla.define(kind="compile", name=f"{about.name}: XLA")
        traced = trace.compiled[-1] if trace.compiled else begin
        trace.compiled += (code, traced, code + 1, max(end - about.fastest_ns, traced))
    return trace


# ----------------------------------------------------------------------------------------------------------------------

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
        for inner, leaf in flatten_arguments(str(name), value):
            if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
                kind = getattr(leaf.dtype, "name", str(leaf.dtype))
                found[inner] = ("tensor", f"{kind}[{', '.join(map(str, leaf.shape))}]")
    return found
