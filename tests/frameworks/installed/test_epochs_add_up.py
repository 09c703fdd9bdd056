"""Whole trainings in every framework: steps and what lies between them are the epochs, epochs are the training."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sonda.analysis.steps.training import summarise_training
from sonda.record.run import Run
from sonda.record.store import Store
from sonda.targets.job import Job
from sonda.targets.pipeline import measure

BETWEEN = 0.1
"""The part of a walk that may lie between its steps: a loop of Python that counts, and writes a file now and then. A
step that is not waited for leaves nearly all of its time there."""
NETWORKS: dict[str, dict[str, str]] = {
    "mlp": {"batch": "32", "layers": "784-2000-2000-9"},
    "cnn": {"batch": "32", "image": "48x48"},
}
TRAININGS = [
    ("torch", "mlp"), ("torch", "cnn"), ("tensorflow", "mlp"), ("tensorflow", "cnn"), ("jax", "mlp"), ("jax", "cnn"),
    ("pytensor", "mlp"),
]  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trainings")


@cache
def trained(place: Path, framework: str, network: str) -> Run:
    """Two epochs of 240 images or so."""
    pytest.importorskip(framework)
    job = Job(
        workload=network, options=NETWORKS[network], framework=framework, train=True, epochs=2, data="drawn", images=40,
        split="0.7/0.2/0.1", threads=1,
    )  # fmt: skip
    return measure(job, Store(place))


def walks(run: Run) -> list[tuple[str, float, float, np.ndarray, np.ndarray]]:
    """Part, begin and end of each walk, with begins and ends of its steps, ns."""
    spans = run.spans
    start = spans.number("start").astype(np.float64)
    end = start + spans.number("duration")
    parent, names = spans.number("parent"), spans.words("name").decoded()
    steps = np.flatnonzero(spans.where(kind="step") & ~spans.words("pass").equal("count"))
    found = []
    for row in np.flatnonzero(spans.where(kind="epoch")):
        own = steps[parent[steps] == row]
        found.append((names[row], start[row], end[row], start[own], end[own]))
    return sorted(found, key=lambda walk: walk[1])


@pytest.mark.slow
@pytest.mark.parametrize(("framework", "network"), TRAININGS)
def test_steps_and_what_lies_between_them_are_the_epochs(framework: str, network: str, place: Path) -> None:
    run = trained(place, framework, network)
    between = 0.0
    for part, begin, end, starts, ends in walks(run):
        assert len(starts) > 1, part
        assert begin <= starts[0] and ends[-1] <= end and (starts[1:] >= ends[:-1]).all(), part
        gap = (end - begin) - (ends - starts).sum()
        between += gap
        if part == "train":
            assert 0 <= gap < BETWEEN * (end - begin), part
    training = summarise_training(run)
    assert training is not None and training.between_steps == pytest.approx(between)


@pytest.mark.slow
@pytest.mark.parametrize(("framework", "network"), TRAININGS)
def test_epochs_are_the_time_of_the_training(framework: str, network: str, place: Path) -> None:
    """PyTorch keeps a checkpoint after every epoch, which is in no epoch; the others keep none."""
    run = trained(place, framework, network)
    every = walks(run)
    assert [part for part, *_ in every] == ["train", "validate", "train", "validate", "test"]
    training = summarise_training(run)
    assert training is not None
    assert training.whole == pytest.approx(sum(end - begin for _, begin, end, *_ in every))
    whole = every[-1][2] - every[0][1]
    assert training.whole <= whole
    if framework != "torch":
        assert training.whole > (1 - BETWEEN) * whole


def arrays_of(learner: Any) -> list[Any]:
    network = learner.network
    return [*network.weights.values(), *network.running.values()]


def test_a_step_of_jax_ends_when_its_results_are_there() -> None:
    """The product of a wide layer takes far longer than handing it over."""
    jax = pytest.importorskip("jax")
    from sonda.workloads.in_jax.learner import JaxLearner
    from sonda.workloads.networks.mlp import Perceptron

    network = Perceptron(batch=256, layers=(784, 2000, 2000, 9), loss="cross_entropy")
    learner = JaxLearner(network, 0, "float32", jax.devices("cpu")[0])
    inputs, targets = np.ones((256, 784), np.float32), np.zeros(256, np.int64)
    for train in (True, False):
        learner.ready(inputs, targets, train)
    for _ in range(3):
        loss = learner.learn(inputs, targets)
        assert loss.is_ready() and all(weight.is_ready() for weight in arrays_of(learner))
        assert all(result.is_ready() for result in learner.judge(inputs, targets))
