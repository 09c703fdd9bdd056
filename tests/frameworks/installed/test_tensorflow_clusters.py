"""Strategies of several processes, started as a run starts them: whole trainings whose weights are those of PyTorch."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter_ns as now

import msgspec
import numpy as np
import pytest

from sonda.frameworks.reconstruction.assembly import assemble
from sonda.record.training import FINAL, read_trained
from sonda.targets.job import JOB, Job
from sonda.targets.ranks.elastic_agent import PLAN
from sonda.targets.ranks.strategy_agent import run_members
from sonda.targets.ranks.strategy_plan import make_strategy_plan
from sonda.targets.target import parse_target
from sonda.workloads.data.prepared import load
from sonda.workloads.data.training_set import divide, make_ready
from sonda.workloads.networks.mlp import Perceptron

torch = pytest.importorskip("torch")
pytest.importorskip("tensorflow")
SEED, BATCH = 3, 20
SUMS = 1e-12
"""Of weights below 1 after 14 steps in float64: two frameworks add up in different orders, and so do two shares."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """126 drawn fish to train on: six batches of 20 and one of 6."""
    return make_ready("drawn", tmp_path_factory.mktemp("store"), (28, 28), 1, images=20)


@pytest.fixture(scope="module")
def expected(place: Path) -> tuple[dict[str, np.ndarray], list[float]]:
    """Weights after two epochs on one device in PyTorch, and the mean loss of each epoch as it was met."""
    from sonda.frameworks.torch.drive.learner import SingleLearner
    from sonda.workloads.in_torch.training_images import TrainingImages

    network = Perceptron(batch=BATCH, layers=(784, 16, 9), loss="cross_entropy", activation="tanh", learning_rate=0.1)
    data = divide(load(place), "0.7/0.1/0.2", seed=SEED)
    task = network.in_torch(True, SEED)
    task.model.double()
    learner, optimizer, losses = SingleLearner(task, TrainingImages(data, network, SEED), BATCH), task.optimizer(), []
    for epoch in range(2):
        lost = seen = 0.0
        for batch in learner.batches("train", epoch):
            optimizer.zero_grad()
            loss = task.loss(task.model(*batch.inputs), batch.target)
            loss.backward()
            optimizer.step()
            lost, seen = lost + loss.item() * len(batch.labels), seen + len(batch.labels)
        losses.append(lost / seen)
    return {name: values.numpy() for name, values in task.model.state_dict().items()}, losses


@pytest.mark.parametrize("on", ["multiworker=cpu/1+cpu/1", "parameterserver=cpu/1@servers=1"])
def test_a_cluster_learns_what_one_device_learns(
    on: str, place: Path, expected: tuple[dict[str, np.ndarray], list[float]], tmp_path: Path
) -> None:
    options = {"layers": "784-16-9", "batch": str(BATCH), "loss": "cross_entropy", "activation": "tanh",
               "learning-rate": "0.1"}  # fmt: skip
    kept = tmp_path / "kept"
    kept.mkdir()
    job = Job(
        workload="mlp", options=options, framework="tensorflow", on=on, train=True, epochs=2, split="0.7/0.1/0.2",
        data=str(place), checkpoint=str(kept), seed=SEED, precision="float64",
    )  # fmt: skip
    plan = make_strategy_plan(job, parse_target(on))
    (tmp_path / JOB).write_bytes(msgspec.json.encode(job))
    (tmp_path / PLAN).write_bytes(msgspec.json.encode(plan))
    begin = now()

    report = run_members(plan, tmp_path)

    weights, losses = expected
    found = np.load(kept / FINAL, allow_pickle=False)
    for name, values in weights.items():
        np.testing.assert_allclose(found[name], values, rtol=0, atol=SUMS, err_msg=name)
    trained = read_trained(tmp_path)
    assert trained is not None
    walks = [(walk.part, walk.samples) for walk in trained.walks]
    assert walks == [("train", 126), ("validate", 18), ("train", 126), ("validate", 18), ("test", 36)]
    told = [walk.loss for walk in trained.walks if walk.part == "train"]
    np.testing.assert_allclose(told, losses, rtol=1e-12)
    assert [(one.rank, one.samples, one.cause) for one in report.ranks] == [
        (rank, [BATCH // plan.ranks], "") for rank in range(plan.ranks)
    ]
    spans = assemble(tmp_path, begin, now()).spans
    steps = spans.where(kind="step", pass_="timed")
    ranks, names = spans.number("rank")[steps], [spans.words("name").decoded()[row] for row in np.flatnonzero(steps)]
    seeing = 2 if on.startswith("multiworker") else 1  # a coordinator sees for all
    assert set(ranks.tolist()) == set(range(seeing))
    assert len(names) == seeing * (7 + 1 + 7 + 1 + 2)
