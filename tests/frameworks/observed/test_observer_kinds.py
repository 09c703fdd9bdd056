"""Programs that train, evaluate, play and generate in ways of their own: the same to the last bit, and seen as such.

The counts are made by reading `programs/kinds.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from observed import Nursery, Outcome, check_structure, seen
from sonda.record.spans import Spans

pytest.importorskip("torch")

MLP = {"", "0", "1", "2"}
TRAIN = ("train", 1)
CASES = {
    # name: sections, phases inside steps, layers
    "by_hand": ([("train", 6)], {"forward": 6, "loss": 6, "backward": 6, "optimizer": 6}, MLP),
    "by_data": ([("train", 6)], {"forward": 6, "loss": 6, "backward": 6, "optimizer": 6}, MLP),
    # Eight batches of two, and two iterators.
    "by_hand_loader": ([("train", 8)], {"data": 10, "forward": 8, "loss": 8, "backward": 8, "optimizer": 8}, MLP),
    "own_optimizer": ([("train", 6)], {"forward": 6, "loss": 6, "backward": 6, "optimizer": 6}, MLP),
    # What comes before the first backward has no beginning that could be seen.
    "tensors_only": ([("train", 6)], {"forward": 5, "backward": 6, "optimizer": 6}, set()),
    "functional_gradients": ([("train", 6)], {"forward": 6, "loss": 6, "backward": 6}, MLP),
    "evaluated": ([("train", 3), ("validate", 2)] * 3,
                  {"forward": 15, "loss": 9, "backward": 9, "optimizer": 18}, MLP),
    "evaluated_with_gradients": ([TRAIN, ("validate", 1)] * 5,
                                 {"forward": 10, "loss": 5, "backward": 5, "optimizer": 10}, MLP),
    # Fifteen observations; the target's and the policy's forward are of the step.
    "playing": ([("validate", 3), TRAIN] * 5,
                {"forward": 25, "loss": 5, "backward": 5, "optimizer": 10},
                {f"Sequential{number}{layer}" for number in ("", "#2") for layer in ("", ".0", ".1", ".2")}),
    "taught": ([("train", 5)], {"forward": 10, "loss": 5, "backward": 5, "optimizer": 10},
               {f"Sequential{number}{layer}" for number in ("", "#2") for layer in ("", ".0", ".1", ".2")}),
    "dry_run": ([("train", 5)], {"forward": 5, "loss": 5, "backward": 5, "optimizer": 10},
                {"", "first", "second", "head"}),
    # Three layers, and what lies between them.
    "forward_directly": ([("train", 5), ("test", 4)], {"forward": 45, "loss": 5, "backward": 5, "optimizer": 10},
                         {"first", "second", "head"}),
    # Nobody sees the layers; the forward is what lies before the backward.
    "never_called": ([("train", 6)], {"forward": 6, "backward": 6, "optimizer": 12}, set()),
    # In a step the encoder, two heads and the decoder, and what lies between these; in a test the decoder.
    "methods": ([("train", 5), ("test", 4)], {"forward": 39, "loss": 5, "backward": 5, "optimizer": 10},
                {"encoder", "encoder.0", "encoder.1", "mean", "spread", "decoder", "decoder.0", "decoder.1",
                 "decoder.2"}),
    "named_loss": ([("train", 5)], {"forward": 5, "loss": 5, "backward": 5, "optimizer": 10},
                   {"", "net", "net.0", "net.1", "net.2"}),
    "compiled_step": ([("train", 5)], None, set()),
    "compiled_functional": ([("train", 3), ("validate", 1)] * 2,
                            {"fused": 6, "forward": 2}, set()),
    "compiled_recurrence": ([("test", 6)], {"forward": 6}, set()),
    "compiled_update": ([("train", 5)], {"forward": 5, "loss": 5, "backward": 5, "optimizer": 5, "fused": 5}, MLP),
    # Four texts, and six forwards of their own.
    "writing": ([("test", 10)], {"prefill": 4, "decode": 2 * 4 + 2 * 4, "forward": 6}, {"", "embed", "mix", "head"}),
    "layers_by_hand": ([("test", 6)], {"forward": 18}, {"Linear", "Linear#2"}),
    "folds": ([("train", 4), ("validate", 1)] * 3,
              {"forward": 15, "loss": 12, "backward": 12, "optimizer": 24}, None),
    "accumulated": ([("train", 3)], {"forward": 300, "loss": 300, "backward": 300, "optimizer": 6}, MLP),
    "unused_optimizer": ([("train", 20)], None, MLP),
    # Four inferences by a method, and two calls that only look at what they are given.
    "odd": ([("test", 6)], None, None),
}  # fmt: skip


@pytest.fixture(scope="module")
def nursery() -> Nursery:
    return Nursery()


@pytest.fixture(scope="module")
def observed(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Outcome]:
    """Called with an argument of the program: how it ended and what was observed. Each runs once."""
    return cache(lambda name: nursery.run("kinds", name, directory=tmp_path_factory.mktemp("kinds"), observe=True))


@pytest.mark.parametrize("name", CASES)
def test_a_program_is_the_same_observed_and_its_steps_are_seen(
    nursery: Nursery, observed: Callable[[str], Outcome], tmp_path: Path, name: str
) -> None:
    sections, phases, layers = CASES[name]
    bare = nursery.run("kinds", name, directory=tmp_path, observe=False)
    watched = observed(name)
    assert bare.code == watched.code == 0, watched.output
    assert _own(watched.output) == _own(bare.output)
    assert watched.assembly is not None
    spans = watched.assembly.spans
    check_structure(spans)
    found = seen(spans)
    assert found.parts == sections
    if phases is not None:
        assert found.phases == phases
    if layers is not None:
        assert set(found.forward) == layers
    _check_counts(spans)


def _own(output: str) -> list[str]:
    """Lines of the program itself: the compiler's warnings begin with the time."""
    return [line for line in output.splitlines() if not line.startswith("W")]


def _check_counts(spans: Spans) -> None:
    """A step is counted as a whole, or it has no count: all counted steps of a part and shape did the same."""
    parent, kind = spans.number("parent"), spans.words("kind").decoded()
    step = np.full(len(spans), -1)
    for row in range(len(spans)):
        step[row] = row if kind[row] == "step" else step[parent[row]] if parent[row] >= 0 else -1
    flops = np.nan_to_num(spans.metric("flops", "nominal"))
    part = {row: spans.words("name").decoded()[_part_of(row, parent, kind)] for row in np.flatnonzero(kind == "step")}
    totals: dict[tuple[str, float], set[float]] = {}
    for row in np.flatnonzero(spans.where(kind="step", pass_="count")):
        shape = float(spans.metric("shape", "counted")[row])
        totals.setdefault((part[row], shape), set()).add(float(flops[step == row].sum()))
    assert all(len(different) == 1 for different in totals.values()), totals


def _part_of(row: int, parent: np.ndarray, kind: np.ndarray) -> int:
    while kind[row] != "part":
        row = int(parent[row])
    return row


def test_counting_ends_after_so_many_operations_whatever_the_program_does(observed: Callable[[str], Outcome]) -> None:
    """A program without an optimizer has one counted step, as any other has."""
    watched = observed("by_data")
    assert watched.assembly is not None
    assert seen(watched.assembly.spans).counted == 1


@pytest.mark.parametrize("name", ["accumulated", "unused_optimizer", "compiled_update"])
def test_one_step_is_counted_whoever_updates_the_weights(observed: Callable[[str], Outcome], name: str) -> None:
    watched = observed(name)
    assert watched.assembly is not None
    assert seen(watched.assembly.spans).counted == 1


def test_the_time_limit_ends_observing_also_without_an_optimizer(nursery: Nursery, tmp_path: Path) -> None:
    limited = nursery.run("kinds", "by_data", directory=tmp_path, observe=True, max_time=1e-9)
    assert limited.assembly is not None
    assert len(limited.assembly.notes) == 1
    assert limited.assembly.notes[0].startswith("observing ended at its time limit")
