"""Calls in which XLA compiles: new shapes are told with their arguments, and compiling from the run behind it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from sonda.frameworks.collector.traces import FunctionTraces
from sonda.frameworks.tensorflow.observe.tracing import Trace, XlaShapes, add_xla

XLA = SimpleNamespace(define=lambda **words: 40)
"""A recorder that gives every definition this code."""


def flatten(value: Any, expand_composites: bool = False) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for part in value.values() for leaf in flatten(part)]
    if isinstance(value, (tuple, list)):
        return [leaf for part in value for leaf in flatten(part)]
    if isinstance(value, str):
        raise TypeError("no nest")
    return [value]


class Model:
    def step(self, x: Any, batch: Any) -> None: ...


def compiled(python_function: Any, *names: str) -> Any:
    kind = SimpleNamespace(parameters=dict.fromkeys(names))
    return SimpleNamespace(function_type=kind, python_function=python_function)


def test_shapes_are_new_once_and_named_as_traces_name_them() -> None:
    shapes = XlaShapes(SimpleNamespace(flatten=flatten))
    step = compiled(lambda x, batch: None, "x", "batch")
    small, large = np.ones((2, 4), np.float32), np.ones((3, 4), np.float32)
    keywords = {"batch": {"image": (large, 1)}}
    assert shapes.new_signature(7, step, (small,), keywords) == {
        "x": ("tensor", "float32[2, 4]"), "batch['image'][0]": ("tensor", "float32[3, 4]"),
    }  # fmt: skip
    assert shapes.new_signature(7, step, (small * 2,), keywords) is None
    assert shapes.new_signature(7, step, (large,), keywords) is not None
    assert shapes.new_signature(8, step, (small,), keywords) is not None, "another function has shapes of its own"
    assert shapes.new_signature(7, step, ("unruly",), keywords) is None


def test_the_object_of_a_method_is_no_argument() -> None:
    shapes = XlaShapes(SimpleNamespace(flatten=flatten))
    signature = shapes.new_signature(1, compiled(Model().step, "self", "x", "batch"), (np.ones(3), np.ones((5, 5))), {})
    assert signature == {"x": ("tensor", "float64[3]"), "batch": ("tensor", "float64[5, 5]")}


def test_compiling_ends_a_usual_run_before_the_call_does() -> None:
    """Calls from 1,000 ns on; one of 300 ns, the fastest, is known before the last."""
    about = FunctionTraces("step", "")
    trace = Trace()
    trace.compiled, trace.signature = (8, 1_010, 9, 1_200), {"x": ("tensor", "float32[?]"), "n": ("python", "1")}
    first = add_xla(about, trace, {"x": ("tensor", "float32[2]")}, XLA, 1_000, 5_000)
    assert first is trace and about.xla
    assert trace.compiled == (8, 1_010, 9, 1_200, 40, 1_200, 41, 5_000), "no run is known to compare with"
    assert trace.signature == {"x": ("tensor", "float32[2]"), "n": ("python", "1")}
    for lasted in (500, 300, 400):
        assert add_xla(about, None, None, XLA, 1_000, 1_000 + lasted) is None
    assert about.fastest_ns == 300
    again = add_xla(about, None, {"x": ("tensor", "float32[3]")}, XLA, 1_000, 5_000)
    assert again is not None and again.compiled == (40, 1_000, 41, 4_700) and again.lasted == 0


def test_a_function_without_xla_has_nothing_but_its_graphs() -> None:
    about, trace = FunctionTraces("step", ""), Trace()
    trace.compiled = (8, 1_010, 9, 1_200)
    assert add_xla(about, trace, None, None, 1_000, 5_000) is trace
    assert trace.compiled == (8, 1_010, 9, 1_200) and not about.xla
