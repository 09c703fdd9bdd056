"""What counted steps show of programs that do something needless; the same weights come out, bit by bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from observed import PROGRAMS, Nursery
from sonda.record.evidence import StepEvidence

pytest.importorskip("torch")


@pytest.fixture(scope="module")
def nursery() -> Nursery:
    return Nursery()


def observe(nursery: Nursery, tmp_path: Path, name: str) -> StepEvidence:
    """The evidence of the program's counted training step."""
    bare = nursery.run("needless", name, directory=tmp_path / "bare", observe=False)
    seen = nursery.run("needless", name, directory=tmp_path / "seen", observe=True)
    assert bare.code == seen.code == 0, seen.output[-2000:]
    assert seen.output == bare.output
    assert seen.assembly is not None
    steps: list[Any] = [msgspec.convert(step, StepEvidence) for step in seen.assembly.evidence]
    assert {step.part for step in steps} == {"train"}
    return steps[-1]


def line_of(words: str) -> str:
    """The line of `needless.py` that holds these words and the mark."""
    lines = (PROGRAMS / "needless.py").read_text().splitlines()
    numbers = [number for number, line in enumerate(lines, 1) if words in line and line.endswith("# here")]
    assert len(numbers) == 1
    return f"needless.py:{numbers[0]}"


def names_line(line: str, expected: str) -> bool:
    """Files are named from the working directory where they lie in it."""
    return line == expected or line.endswith(f"/{expected}")


def test_a_program_that_needs_all_it_does(nursery: Nursery, tmp_path: Path) -> None:
    step = observe(nursery, tmp_path, "good")
    assert (step.repeated, step.thrown, step.graphs, step.subnormal) == ([], [], [], [])
    assert step.batch == 5
    assert {(size.layer, size.weights, size.inputs, size.outputs) for size in step.sizes} == {
        ("body.0", 144, 8, 16), ("body.2", 68, 16, 4), ("head", 10, 4, 2),
    }  # fmt: skip
    (update,) = step.updates
    assert (update.optimizer, update.tensors, update.elements, update.fused) == ("SGD", 6, 222, False)


def test_a_recurrent_layer_makes_an_operation_for_each_time_step(nursery: Nursery, tmp_path: Path) -> None:
    """Two layers of 40 time steps each, in one call or in many."""
    step = observe(nursery, tmp_path, "recurrent")
    forward = sum(group.operations for group in step.groups if group.layer == "states" and group.phase == "forward")
    assert forward >= 2 * 40


def test_counting_begins_outside_of_inference_mode_and_ends_within(nursery: Nursery, tmp_path: Path) -> None:
    """Leaving the mode restores what the dispatcher looked at when it was entered: nothing may be left of counting."""
    bare = nursery.run("needless", "validated", directory=tmp_path / "bare", observe=False)
    seen = nursery.run("needless", "validated", directory=tmp_path / "seen", observe=True)
    assert (seen.code, seen.output) == (bare.code, bare.output)
    assert bare.code == 0 and seen.assembly is not None
    assert seen.assembly.evidence, "a step was counted"


def test_gradients_of_a_part_that_nobody_trains(nursery: Nursery, tmp_path: Path) -> None:
    step = observe(nursery, tmp_path, "frozen")
    assert [(thrown.layer, thrown.part, thrown.first) for thrown in step.thrown] == [
        ("body.0", 1.0, True), ("body.2", 1.0, True),
    ]  # fmt: skip
    assert names_line(step.call_lines["body"], line_of("return self.head(self.body(x))  #"))


def test_gradients_that_are_cleared_before_they_are_used(nursery: Nursery, tmp_path: Path) -> None:
    """The judge's loss reaches the maker and the maker's the judge: half of the gradients of either are cleared."""
    step = observe(nursery, tmp_path, "two_networks")
    parts = {thrown.layer: thrown.part for thrown in step.thrown}
    assert parts["Sequential.0"] == parts["Sequential.2"] == 0.5


def test_a_graph_that_no_backward_reaches(nursery: Nursery, tmp_path: Path) -> None:
    (graph,) = observe(nursery, tmp_path, "target").graphs
    assert (graph.calls, graph.unused) == (1, 1)
    assert names_line(graph.line, line_of("other(x).detach()"))


def test_lines_have_the_functions_around_them(nursery: Nursery, tmp_path: Path) -> None:
    step = observe(nursery, tmp_path, "target")
    (graph,) = step.graphs
    assert step.functions[graph.line] == "target.<locals>.loss_of"
    assert step.functions[step.line] == "target.<locals>.loss_of"
    assert {group.line for group in step.groups if group.line} <= set(step.functions)


def test_a_model_called_again_with_the_same_numbers(nursery: Nursery, tmp_path: Path) -> None:
    """A copy of the input is the same input."""
    (call,) = observe(nursery, tmp_path, "again").repeated
    assert (call.layer, call.calls, call.repeated) == ("", 2, 1)
    assert names_line(call.line, line_of("model(x.clone())"))


def test_calls_through_a_helper_differ_in_who_calls_it(nursery: Nursery, tmp_path: Path) -> None:
    """The model is called in one line of the helper; the last of its three callers is named."""
    (call,) = observe(nursery, tmp_path, "through_a_helper").repeated
    assert (call.calls, call.repeated) == (3, 2)
    assert names_line(call.line, line_of("score(x).argmax(1)"))


def test_a_part_called_again_inside_of_a_forward(nursery: Nursery, tmp_path: Path) -> None:
    repeated = {call.layer: call for call in observe(nursery, tmp_path, "inside").repeated}
    assert (repeated["body"].calls, repeated["body"].repeated) == (2, 1)
    assert "" not in repeated and "body.0" not in repeated


def test_random_numbers_make_another_result(nursery: Nursery, tmp_path: Path) -> None:
    assert observe(nursery, tmp_path, "noisy").repeated == []


def test_numbers_of_64_bits(nursery: Nursery, tmp_path: Path) -> None:
    step = observe(nursery, tmp_path, "double")
    assert {group.bits for group in step.groups if group.family == "product"} == {64}


def test_a_table_of_which_a_batch_touches_three_rows(nursery: Nursery, tmp_path: Path) -> None:
    """A sample of every row: at most 3 of 4,000 have a gradient."""
    (table,) = observe(nursery, tmp_path, "table").updates[0].tables
    assert (table.layer, table.rows, table.elements) == ("table", 4000, 16_000)
    assert table.untouched >= 1 - 3 / 4000


def test_operations_outside_of_modules_have_their_lines(nursery: Nursery, tmp_path: Path) -> None:
    """For each of 30 rows: a square, a sum, an addition."""
    step = observe(nursery, tmp_path, "outside")
    here = [group for group in step.groups if names_line(group.line, line_of("row.square().sum()"))]
    assert {group.phase for group in here} == {""}
    assert sum(group.operations for group in here) == 3 * 30
    (copy,) = [group for group in step.groups if group.family == "copy" and group.phase == ""]
    assert (copy.operations, copy.bytes) == (1, 8)


def test_an_operation_that_reads_subnormal_numbers(nursery: Nursery, tmp_path: Path) -> None:
    (operation,) = observe(nursery, tmp_path, "subnormal").subnormal
    assert (operation.name, operation.part) == ("aten.sqrt", 1.0)
    assert names_line(operation.line, line_of("small.sqrt()"))
    assert operation.times > 0


def test_an_operation_that_gives_subnormal_numbers(nursery: Nursery, tmp_path: Path) -> None:
    operations = {operation.name: operation for operation in observe(nursery, tmp_path, "underflowing").subnormal}
    assert {"aten.exp", "aten.mm"} <= set(operations), "one gives such numbers, the other reads them"
    assert operations["aten.exp"].part == pytest.approx(0.5, abs=0.05)
    assert names_line(operations["aten.exp"].line, line_of("far.exp()"))
