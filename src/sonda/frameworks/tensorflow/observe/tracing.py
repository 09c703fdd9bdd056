"""Traces of `tf.function`s, and shapes for which XLA compiled them: it compiles for new shapes, also of the same graph.

A `tf.function(jit_compile=True)` whose graph takes any number of rows is traced once, and compiled for each number.
TensorFlow does not tell when that happens. It is inferred from tensors with shapes that the function never had before.
"""

from __future__ import annotations

from typing import Any

from ...collector.traces import FunctionTraces, flatten_arguments

# ---- The signature of a trace: the arguments that a graph is made for -----------------------------------------------


def signature_of(function_type: Any) -> dict:
    """The signature of a trace, from the types of its arguments."""
    signature: dict = {}
    for name, parameter in function_type.parameters.items():
        for inner, kind in flatten_arguments(str(name), parameter.type_constraint, _components):
            signature[inner] = _describe_type(kind)
    return signature


def _components(kind: Any) -> Any:
    return getattr(kind, "components", None) or getattr(kind, "mapping", None)


def _describe_type(kind: Any) -> tuple:
    if hasattr(kind, "value"):
        return ("python", repr(kind.value))
    if hasattr(kind, "shape") and hasattr(kind, "dtype"):
        known = kind.shape.rank is not None
        shape = ", ".join("?" if size is None else str(size) for size in kind.shape) if known else "..."
        return ("tensor", f"{kind.dtype.name}[{shape}]")
    return ("object", str(kind))


# ---- A call in which TensorFlow makes graphs, or XLA compiles -------------------------------------------------------


class Trace:
    """What is found out while graphs are made in a call."""

    def __init__(self) -> None:
        self.learns = False
        self.variables = False
        self.lasted = 0
        """Time of tracing all graphs, ns."""
        self.signature: dict = {}
        self.compiled: tuple = ()
        """Begin and end of everything that was compiled, as events."""


def add_xla(
    history: FunctionTraces, trace: Trace | None, shapes: dict | None, recorder: Any, begin: int, end: int
) -> Trace | None:
    """The trace of a call from `begin` to `end` (ns) with the compilation by XLA; None where nothing was compiled.

    `trace` is that of graphs. `shapes` are those that are new to a function that XLA compiles. `recorder` is given for
    such a function only. XLA compiles after the graphs are made and before it runs. The run is taken to be as long as
    the fastest one so far; before there was one, it counts as compiling.
    """
    if trace is None and shapes is None:
        history.fastest_ns = min(end - begin, history.fastest_ns or end)
        return None
    trace = trace or Trace()
    if recorder:
        history.xla = True
        # XLA compiles the graph that was traced last, for new shapes.
        graph_signature = trace.signature or (history.signatures[-1] if history.signatures else {})
        trace.signature = {**graph_signature, **(shapes or {})}
        code = recorder.define(kind="compile", name=f"{history.name}: XLA")
        traced_until = trace.compiled[-1] if trace.compiled else begin
        trace.compiled += (code, traced_until, code + 1, max(end - history.fastest_ns, traced_until))
    return trace


# ----------------------------------------------------------------------------------------------------------------------

MOST_SHAPES = 10_000
"""Shapes of one function that are remembered."""


class XlaShapes:
    """Remembers the shapes of calls; `new_signature` is called before each call of a function that XLA compiles."""

    def __init__(self, nest: Any) -> None:
        self._flatten = nest.flatten
        self._known: dict = {}
        """Hashes of shapes so far, by the number of a function."""

    def new_signature(self, number: int, function: Any, args: tuple, kwargs: dict) -> dict | None:
        """The signature of a call if its tensors have shapes that this function never had, else None."""
        try:
            leaves = self._flatten((args, kwargs), expand_composites=True)
            shapes = hash(tuple(_shape_of(leaf) for leaf in leaves))
            known = self._known.setdefault(number, set())
            if shapes in known:
                return None
            if len(known) < MOST_SHAPES:
                known.add(shapes)
            return _call_signature(function, args, kwargs)
        except Exception:  # an argument is no nest: TensorFlow itself will say so
            return None


def _shape_of(leaf: Any) -> Any:
    shape = getattr(leaf, "shape", None)
    return None if shape is None else tuple(shape)


def _call_signature(function: Any, args: tuple, kwargs: dict) -> dict:
    """The signature of a call: its tensors, named as in the signature of a trace."""
    names = list(function.function_type.parameters)
    if getattr(function.python_function, "__self__", None) is not None and names[:1] == ["self"]:
        del names[0]
    signature: dict = {}
    for name, value in [*zip(names, args, strict=False), *kwargs.items()]:
        for inner, leaf in flatten_arguments(str(name), value):
            if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
                kind = getattr(leaf.dtype, "name", str(leaf.dtype))
                signature[inner] = ("tensor", f"{kind}[{', '.join(map(str, leaf.shape))}]")
    return signature
