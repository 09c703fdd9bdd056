"""JAX programs whose batches have several sizes, and whose functions share a name: whose FLOPs and layers they are."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from jax_layers_cases import Ran, steps
from sonda.frameworks.collector import piece_pass
from sonda.frameworks.collector.piece_pass import AFTER, CALLS
from sonda.frameworks.collector.recorder import Recorder
from sonda.frameworks.jax.observe.jit_pass import JaxPass
from sonda.frameworks.jax.observe.profiler import start_trace
from sonda.frameworks.jax.observe.signatures import MOST_CHANGES, CallShapes
from sonda.frameworks.jax.profile.hlo import Module
from sonda.frameworks.jax.profile.places import InstructionPlaces
from sonda.record.spans import Spans, Words
from sonda.targets.profiles import jax as jax_layers
from sonda.targets.profiles.call_layers import CallLayers

jax = pytest.importorskip("jax")
ROWS, MORE, WIDTH = 64, 512, 96
PRODUCT = 2 * ROWS * WIDTH**2
"""FLOPs of the forward of a whole batch, by hand."""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return Ran(tmp_path_factory.mktemp("shapes") / "run", "jax_shapes.py")


def test_flops_and_layers_are_those_of_the_shapes_that_most_steps_of_a_part_have(ran: Ran) -> None:
    """Not those of the last batch. The test has larger batches than validation: it is profiled and counted too."""
    found = ran.counted("jax.dot")
    assert [flops for (phase, path), flops in found.items() if "lambda" in path] == [PRODUCT, PRODUCT]
    (score,) = (flops for (phase, path), flops in found.items() if "score" in path)
    both = PRODUCT * (ROWS + MORE) / ROWS
    assert both <= score < 1.05 * both, "with the squares and their sum, where XLA fused them"
    validate, test = steps(ran.spans, "validate"), steps(ran.spans, "test")
    assert validate["count"] == test["count"] == 1 and test["pieces"] == CALLS
    assert [note for note in ran.notes if "not counted" in note] == []


def test_functions_of_one_name_are_told_apart(ran: Ran) -> None:
    """A profile of five steps; another of the validation, which waits for its second call while an epoch is trained."""
    assert [note for note in ran.notes if "missing" in note] == []
    assert steps(ran.spans, "train")["pieces"] == CALLS + 20, "without the last batch, which is smaller"
    place = Path(__file__).parent / "programs" / "jax_shapes.py"
    line = next(at for at, text in enumerate(place.read_text().splitlines(), 1) if text.startswith("step ="))
    found = {one for one in ran.layers(pass_="pieces") if "lambda" in one[0]}
    assert found == {(f"<lambda>:{line}", "forward"), (f"<lambda>:{line}", "backward")}


def test_what_was_profiled_with_other_shapes_says_nothing_of_a_part() -> None:
    """Three steps of 100 ns in a test; shapes change 50 ns after the run began. The clock had begun 1000 ns before."""
    spans = Spans(
        {
            "start": np.array([0, 0, 100, 100, 200, 200, 300, 300]), "duration": np.array([900, 900, *[90] * 6]),
            "parent": np.array([-1, 0, 1, 2, 1, 4, 1, 6]),
        },
        {
            "kind": Words.of(["run", "part", *["step", "phase"] * 3]),
            "name": Words.of(["", "test", *["test", "forward"] * 3]),
            "pass": Words.of(["timed"] * 8),
        },
    )  # fmt: skip
    process = jax_layers.JittedProcess(callers={"forward": [1]}, shapes={"1": [(1000, 0), (1050, 1)]})
    callers = jax_layers._Callers(process, spans, 1000)
    first, second = (
        jax_layers._Compiled(1, "score", "forward", shapes, Module(), InstructionPlaces({})) for shapes in (0, 1)
    )
    rows = np.flatnonzero(spans.where(kind="step"))
    with pytest.raises(ValueError, match="score was profiled with other shapes than most of its calls have here"):
        jax_layers._called_functions(spans, rows, [first], callers)
    assert jax_layers._called_functions(spans, rows, [first, second], callers) == [(second, 1)]
    assert [callers.has_usual_shapes(one, 5) for one in (first, second)] == [False, True]
    layers = CallLayers(spans)
    layers.leave_out(5)
    assert layers.table().words("pass").decoded().tolist() == [*["timed"] * 4, "warmup", "warmup", "timed", "timed"]


def test_later_shapes_are_profiled_once_they_come_in_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not those of a last batch, which come every sixth time."""
    monkeypatch.setattr(piece_pass, "LONGEST", 1 << 62)
    took: list[str] = []
    profiler = SimpleNamespace(
        ProfileOptions=SimpleNamespace, start_trace=lambda folder, profiler_options: took.append(folder),
        stop_trace=lambda: None,
    )  # fmt: skip
    made = JaxPass(Recorder(str(tmp_path)), profiler, True)
    text = SimpleNamespace(compile=lambda: SimpleNamespace(as_text=lambda: "HloModule jit_step"))

    def call(shapes: int) -> bool:
        profiled = made.begin_call(1, shapes)
        if profiled:
            made.note_call(1, "step", "fused", 0, True, False, shapes, lambda: text)
        return profiled

    def calls(*shapes: int) -> int:
        return sum(call(one) for one in shapes)

    assert calls(*[0] * (AFTER + CALLS)) == CALLS
    assert calls(*[0, 0, 0, 0, 0, 1] * (AFTER + CALLS)) == 0
    assert calls(*[2] * (AFTER + CALLS + 4)) == CALLS and calls(*[0, 2] * 20) == 0
    assert len(took) == 2 and [one["texts"] for one in made.kept] == [
        [[1, "step", "fused", 0]],
        [[1, "step", "fused", 2]],
    ]


def test_changes_of_shapes_are_kept_for_each_function_that_is_made_at_a_place() -> None:
    """The second function is the same code: JAX has compiled it already, and says nothing when it is called."""
    shapes, place = CallShapes(jax.tree_util), object()
    first, second = (
        SimpleNamespace(number=number, history=place, arguments=("x", "deep"), static={"deep"}) for number in (1, 2)
    )

    def call(function: Any, begin: int, rows: int, deep: bool = True, compiled: bool = False) -> int:
        shapes.note_call(function, (({"x": np.ones((rows, 3))}, deep), {}), begin, compiled)
        return shapes.current(function.number)

    assert [call(first, 10, 4), call(first, 11, 4, compiled=True), call(first, 20, 4)] == [0, 0, 0]
    assert shapes.facts() == {}
    assert [call(first, 30, 8, compiled=True), call(first, 40, 8), call(first, 50, 4)] == [1, 1, 0]
    assert [call(second, 60, 8), call(second, 70, 4), call(second, 80, 4, deep=False)] == [0, 1, 2]
    assert shapes.facts() == {"1": [(10, 0), (30, 1), (50, 0)], "2": [(60, 0), (70, 1), (80, 2)]}
    for begin in range(MOST_CHANGES):
        call(second, 90 + begin, 4 + 4 * (begin % 2))
    assert shapes.facts()["2"] == [], "too many to be kept"


def test_a_profile_that_cannot_be_written_leaves_the_profiler_to_the_program(tmp_path: Path) -> None:
    """A file lies where its folder would be. JAX itself keeps such a profile, and would start no other."""
    (tmp_path / "file").touch()
    made = JaxPass(Recorder(str(tmp_path)), jax.profiler, True)
    made.running, made.done, made._tried[made.function] = True, 1, 1
    start_trace(jax.profiler, str(tmp_path / "file" / "inside"))
    made.end()
    assert made.why.startswith("the profile was not written: ") and not made.kept
    jax.profiler.start_trace(str(tmp_path / "own"))
    jax.profiler.stop_trace()
    assert list((tmp_path / "own").rglob("*.xplane.pb"))
