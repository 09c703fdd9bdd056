"""JAX programs whose batches have several sizes, and whose functions share a name: whose FLOPs and layers they are."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from test_jax_layers import Ran, steps

from sonda.frameworks.collector.jax_shapes import MOST_CHANGES, Shapes
from sonda.frameworks.collector.piece_pass import CALLS

jax = pytest.importorskip("jax")
ROWS, WIDTH = 64, 96
PRODUCT = 2 * ROWS * WIDTH**2
"""FLOPs of the forward of a whole batch, by hand."""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return Ran(tmp_path_factory.mktemp("shapes") / "run", "jax_shapes.py")


def test_flops_are_those_of_the_shapes_that_most_steps_have(ran: Ran) -> None:
    """Not those of the last batch; and those of validation do not stand for the test, whose batches are larger."""
    found = ran.counted("jax.dot")
    assert [flops for (phase, path), flops in found.items() if "lambda" in path] == [PRODUCT, PRODUCT]
    (score,) = (flops for (phase, path), flops in found.items() if "score" in path)
    assert PRODUCT <= score < 1.05 * PRODUCT, "with the squares and their sum, where XLA fused them"
    assert steps(ran.spans, "validate")["count"] == 1 and steps(ran.spans, "test")["count"] == 0
    said = [note for note in ran.notes if "FLOPs are not counted" in note]
    assert said == [
        "test: FLOPs are not counted: score was profiled with other shapes than most of its calls have here"
    ]


def test_functions_of_one_name_are_told_apart(ran: Ran) -> None:
    """A profile of five steps; another of the validation, which waits for its second call while an epoch is trained."""
    assert [note for note in ran.notes if "missing" in note] == []
    assert steps(ran.spans, "train")["pieces"] == CALLS + 21
    place = Path(__file__).parent / "programs" / "jax_shapes.py"
    line = next(at for at, text in enumerate(place.read_text().splitlines(), 1) if text.startswith("step ="))
    found = {one for one in ran.layers(pass_="pieces") if "lambda" in one[0]}
    assert found == {(f"<lambda>:{line}", "forward"), (f"<lambda>:{line}", "backward")}


def test_changes_of_shapes_are_kept_for_each_function_that_is_made_at_a_place() -> None:
    """The second function is the same code: JAX has compiled it already, and says nothing when it is called."""
    shapes, place = Shapes(jax.tree_util), object()
    first, second = (
        SimpleNamespace(number=number, about=place, arguments=("x", "deep"), static={"deep"}) for number in (1, 2)
    )

    def call(function: Any, begin: int, rows: int, deep: bool = True, compiled: bool = False) -> int:
        shapes.called(function, (({"x": np.ones((rows, 3))}, deep), {}), begin, compiled)
        return shapes.now(function.number)

    assert [call(first, 10, 4), call(first, 11, 4, compiled=True), call(first, 20, 4)] == [0, 0, 0]
    assert shapes.facts() == {}
    assert [call(first, 30, 8, compiled=True), call(first, 40, 8), call(first, 50, 4)] == [1, 1, 0]
    assert [call(second, 60, 8), call(second, 70, 4), call(second, 80, 4, deep=False)] == [0, 1, 2]
    assert shapes.facts() == {"1": [(10, 0), (30, 1), (50, 0)], "2": [(60, 0), (70, 1), (80, 2)]}
    for begin in range(MOST_CHANGES):
        call(second, 90 + begin, 4 + 4 * (begin % 2))
    assert shapes.facts()["2"] == [], "too many to be kept"
