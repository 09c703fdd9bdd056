"""Steps that are one compiled function: what a summary says of the phase `fused` and of steps in pieces."""

from __future__ import annotations

import pytest

from builders import MS, RunBuilder
from sonda.analysis import wording
from sonda.analysis.doubts import LayersApart
from sonda.analysis.run_summary import summarise
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


def test_layers_have_the_part_of_the_timed_phase_that_they_have_of_a_step_in_pieces() -> None:
    """6 of the 20 ms of a step in pieces are a layer's forward: 6/20 of the 8 ms of the fused function."""
    summary = trained()
    layers = {row.path: row for row in only(summary).layers}
    assert layers["0"].forward.value == layers["0"].backward.value == pytest.approx(6 / 20 * 8 * MS)
    assert layers["0"].cost.share == pytest.approx(12 / 20 * 8 / 10)
    assert layers["0"].cost.flops.value == pytest.approx(2.5e9)
    (note,) = (note for note in summary.notes if isinstance(note, LayersApart))
    assert (note.steps, note.times) == (3, pytest.approx(2.0))
    assert wording.times(188.4) == "188 times"


@pytest.mark.parametrize(("pieces", "has_ends", "few"), [(1, False, 0), (3, True, 3), (8, True, 0)])
def test_layers_have_an_interval_from_two_steps_on_and_one_of_95_percent_from_six(
    pieces: int, has_ends: bool, few: int
) -> None:
    part = only(trained(pieces))
    values = [value for row in part.layers for value in (row.forward, row.backward, row.own, row.cost.time)]
    values += part.outside.values()
    assert {(value.low is not None, value.high is not None, value.few) for value in values} == {
        (has_ends, has_ends, few)
    }


def test_phases_inside_a_function_are_its_layers_and_what_is_outside_of_them() -> None:
    """Of 20 ms, 8 are forward, all in layers; 1 is loss; 9 are backward, 8 of them in layers; 2 update."""
    part = only(trained())
    eight = 8 / 20 * MS
    assert {name: share * 10 * MS for name, share in part.inside.items()} == pytest.approx(
        {"forward": 8 * eight, "loss": eight, "backward": 9 * eight, "optimizer": 2 * eight}
    )  # and nothing beside them: a phase without time is not named
    assert {name: value.value for name, value in part.outside.items()} == pytest.approx(
        {"forward": 0, "backward": eight}
    )


def uneven(slow: float) -> Summary:
    """Five steps in pieces: forward 4 ms, backward 6, of which their layers take 3 and 5.

    In one of them the backward of a layer is held up for `slow` ms. The program itself takes 5 ms of every step outside
    of its function.
    """
    builder = RunBuilder()
    part = builder.part("train")
    for _ in range(10):
        builder.step(part, 15, {"fused": 10})
    for number in range(5):
        late = slow if number == 3 else 0.0
        rows = builder.step(part, 15 + late, {"forward": 4, "backward": 6 + late}, pass_="pieces")
        builder.layer(rows["forward"], "0", "Linear", 3, "forward")
        builder.layer(rows["backward"], "0", "Linear", 5 + late, "backward")
    return summarise(builder.run())


@pytest.mark.parametrize("slow", [0.0, 400.0])
def test_a_step_that_was_held_up_changes_neither_phases_nor_layers(slow: float) -> None:
    part = only(uneven(slow))
    (layer,) = part.layers
    assert part.inside["backward"] * 15 * MS == pytest.approx(6 * MS)
    assert (layer.forward.value, layer.backward.value) == pytest.approx((3 * MS, 5 * MS))
    assert {name: value.value for name, value in part.outside.items()} == pytest.approx(
        {"forward": 1 * MS, "backward": 1 * MS}
    )


def test_layers_of_the_timed_steps_take_no_more_than_their_phase() -> None:
    """Three layers take turns being short: their medians are 3 ms each, and no step had more than 6.5 ms of them."""
    builder = RunBuilder()
    part = builder.part("test")
    for number in range(15):
        root = builder.layer(builder.step(part, 7, {"forward": 7})["forward"], "", "Net", 7)
        for path in range(3):
            builder.layer(root, str(path), "Linear", 0.5 if path == number % 3 else 3)
    summary = only(summarise(builder.run()))
    layers = {row.path: row.own.value for row in summary.layers}
    assert layers["0"] == layers["1"] == layers["2"] == pytest.approx(7 / 9.5 * 3 * MS)
    assert layers[""] == pytest.approx(7 / 9.5 * 0.5 * MS) and summary.outside["forward"].value == 0


def test_without_pieces_there_are_no_layers_and_no_note() -> None:
    summary = trained(pieces=0)
    assert only(summary).layers == () and not any(isinstance(note, LayersApart) for note in summary.notes)


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
    assert not any(isinstance(note, LayersApart) for note in summary.notes)
