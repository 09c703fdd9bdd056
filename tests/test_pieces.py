"""Steps that are one compiled function: what a summary says of the phase `fused` and of steps in pieces."""

from __future__ import annotations

import pytest

from builders import MS, RunBuilder
from sonda.analysis import wording
from sonda.analysis.summarise import summarise
from sonda.analysis.summary import PartSummary, Summary


def trained(pieces: int = 3) -> Summary:
    """Ten timed steps of 10 ms, 8 of them fused; steps in pieces of 20 ms; 3 GFLOP counted in four phases."""
    builder = RunBuilder()
    part = builder.part("train")
    for _ in range(10):
        builder.step(part, 10, {"data": 1, "fused": 8})
    for _ in range(pieces):
        phases = {"forward": 8, "loss": 1, "backward": 9, "optimizer": 2}
        rows = builder.step(part, 20, phases, pass_="pieces")
        for phase, direction in (("forward", "forward"), ("backward", "backward")):
            root = builder.layer(rows[phase], "", "Net", 8, direction)
            builder.layer(root, "0", "Linear", 6, direction)
            builder.layer(root, "1", "ReLU", 2, direction)
    counted = builder.step(part, 1, dict.fromkeys(("forward", "loss", "backward", "optimizer"), 0.1), pass_="count")
    for phase, flops in (("forward", 1.0e9), ("loss", 0.1e9), ("backward", 1.5e9), ("optimizer", 0.4e9)):
        parent = counted[phase]
        if phase in ("forward", "backward"):
            parent = builder.layer(builder.layer(parent, "", "Net", 0.1, phase), "0", "Linear", 0.1, phase)
        builder.op(parent, "x", flops, 1e6)
    return summarise(builder.run())


def only(summary: Summary) -> PartSummary:
    assert len(summary.parts) == 1
    return summary.parts[0]


def test_the_step_is_the_fused_one() -> None:
    part = only(trained())
    assert part.step.value == 10 * MS and part.steps == 10
    assert [(row.name, row.cost.time.value) for row in part.phases] == [
        ("data", 1 * MS), ("fused", 8 * MS), ("other", 1 * MS),
    ]  # fmt: skip


def test_fused_holds_what_was_counted_in_its_phases() -> None:
    fused = next(row for row in only(trained()).phases if row.name == "fused")
    assert fused.cost.flops.value == pytest.approx(3.0e9)
    assert fused.cost.achieved.value == pytest.approx(3.0e9 / 8e-3)


def test_layers_are_those_of_the_steps_in_pieces_and_shares_are_of_such_a_step() -> None:
    summary = trained()
    layers = {row.path: row for row in only(summary).layers}
    assert (layers["0"].forward.value, layers["0"].backward.value) == (6 * MS, 6 * MS)
    assert layers["0"].cost.share == pytest.approx(12 / 20)
    assert layers["0"].cost.flops.value == pytest.approx(2.5e9)
    note = next(note for note in summary.notes if "steps of their own" in note)
    assert "3 steps" in note and "2.0 times as long" in note
    assert wording.times(188.4) == "188 times"


def test_without_pieces_there_are_no_layers_and_no_note() -> None:
    summary = trained(pieces=0)
    assert only(summary).layers == () and not any("steps of their own" in note for note in summary.notes)


def test_steps_in_pieces_of_which_nothing_came_are_not_spoken_of() -> None:
    """A profiler that fails leaves steps without layers: those of the timed steps are all there is."""
    builder = RunBuilder()
    part = builder.part("test")
    for _ in range(10):
        builder.layer(builder.step(part, 10, {"forward": 9})["forward"], "", "Net", 8)
    for _ in range(5):
        builder.step(part, 30, pass_="pieces")
    summary = summarise(builder.run())
    assert [(row.path, row.forward.value) for row in only(summary).layers] == [("", 8 * MS)]
    assert only(summary).layers[0].cost.share == pytest.approx(8 / 10)
    assert not [note for note in summary.notes if "steps of their own" in note]
