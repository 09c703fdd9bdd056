"""Whole epochs: the same by seed, the same after an interruption, and the same on several devices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import training_cases as cases
from parallel_ranks import on_ranks

EXACT = 1e-12


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(cases.small_set(tmp_path_factory.mktemp("data") / "thirds"))


@pytest.fixture(scope="module")
def single(place: str) -> dict[str, Any]:
    return cases.alone(place)


def same_bits(first: dict[str, Any], second: dict[str, Any]) -> bool:
    return set(first) == set(second) and all(np.array_equal(first[name], second[name]) for name in first)


def difference(first: dict[str, Any], second: dict[str, Any]) -> float:
    """Largest difference of any weight, relative to the largest weight."""
    assert set(first) == set(second)
    scale = max(float(np.abs(values).max()) for values in first.values())
    return max(float(np.abs(first[name] - second[name]).max()) for name in first) / scale


def test_walks_are_those_of_a_training(single: dict[str, Any]) -> None:
    """Of 60 images 44 train (six batches, the last of four), 8 validate, 8 test."""
    assert [(walk.part, walk.epoch, walk.samples) for walk in single["walks"]] == [
        ("train", 0, 44), ("validate", 0, 8), ("train", 1, 44), ("validate", 1, 8), ("test", 2, 8),
    ]  # fmt: skip
    assert all(walk.begin < walk.end for walk in single["walks"])
    assert [walk.accuracy is None for walk in single["walks"]] == [True, False, True, False, False]


def test_loss_and_accuracy_are_those_of_the_tested_weights(place: str, single: dict[str, Any]) -> None:
    """Computed once more, all test images at a time, with PyTorch alone."""
    task, _, data = cases.opened(place)
    task.model.double().load_state_dict({name: torch.from_numpy(value) for name, value in single["weights"].items()})
    task.model.eval()
    numbers = data.shares["test"]
    with torch.no_grad():
        output = task.model(torch.from_numpy(data.prepared.images[numbers].astype(np.float64)))
    labels = torch.from_numpy(data.prepared.labels[numbers])
    test = single["walks"][-1]
    assert test.loss == pytest.approx(float(torch.nn.functional.cross_entropy(output, labels)), rel=1e-12)
    assert test.accuracy == float((output.argmax(1) == labels).double().mean())


def test_it_learns(place: str) -> None:
    walks = cases.alone(place, 12)["walks"]
    trained = [walk.loss for walk in walks if walk.part == "train"]
    assert trained[-1] < 0.5 * trained[0]
    assert walks[-1].accuracy is not None and walks[-1].accuracy > 0.6, "one in three would be guessing"


def test_the_same_seed_gives_the_same_bits(place: str, single: dict[str, Any]) -> None:
    again = cases.alone(place)
    assert same_bits(again["weights"], single["weights"])
    assert [walk.loss for walk in again["walks"]] == [walk.loss for walk in single["walks"]]


def test_moving_everything_up_front_or_loading_in_processes_changes_nothing(place: str, single: dict[str, Any]) -> None:
    assert same_bits(cases.alone(place, transfer="up-front")["weights"], single["weights"])
    assert same_bits(cases.alone(place, 1, workers=1)["states"][1], single["states"][1])


def test_going_on_from_a_checkpoint_gives_the_same_bits(place: str, single: dict[str, Any]) -> None:
    resumed = cases.alone(place, done=1, state=single["states"][1])
    assert [(walk.part, walk.epoch) for walk in resumed["walks"]] == [("train", 1), ("validate", 1), ("test", 2)]
    assert same_bits(resumed["weights"], single["weights"])
    fresh = cases.alone(place, done=1)
    assert not same_bits(fresh["weights"], single["weights"]), "the state must matter"


@pytest.mark.parametrize(
    ("ranks", "function", "settings"),
    [
        (2, cases.shared, ((5, 3), "ddp")),
        (2, cases.shared, ((5, 3), "memory")),
        (2, cases.shared, ((6, 2), "first")),
        (2, cases.shared, ((5, 3), "localsgd")),
        (2, cases.staged, (1, 3)),
        (4, cases.staged, (2, 2)),
    ],
    ids=["unequal shares", "through memory", "the first evaluates", "averaged weights", "pipeline", "two pipelines"],
)
def test_several_ranks_train_as_one_process_does(
    place: str, single: dict[str, Any], ranks: int, function: Any, settings: tuple[Any, ...]
) -> None:
    found = on_ranks(ranks, function, place, *settings)
    for rank in found:
        assert difference(rank["weights"], single["weights"]) < EXACT
    for walk, wanted in zip(found[0]["walks"], single["walks"], strict=True):
        assert (walk.part, walk.epoch, walk.samples) == (wanted.part, wanted.epoch, wanted.samples)
        assert walk.loss == pytest.approx(wanted.loss, rel=1e-12)
        assert walk.accuracy == wanted.accuracy
