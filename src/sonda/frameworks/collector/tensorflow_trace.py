"""A call of a `tf.function` in which something is made: graphs by TensorFlow, a program by XLA."""

from __future__ import annotations

from typing import Any

from .traces import Function


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


def made_in(about: Function, trace: Trace | None, shapes: dict | None, xla: Any, begin: int, end: int) -> Trace | None:
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
