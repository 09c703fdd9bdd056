"""Whole trainings outside PyTorch: the same batches, the loop, what it announces, and what it leaves behind."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter_ns as now
from typing import Any

import numpy as np
import pytest

from sonda.frameworks.collector.recorder import Recorder
from sonda.frameworks.harness import epochs as announced_epochs
from sonda.frameworks.harness.announcer import AnnouncedObserver
from sonda.frameworks.harness.course import Course
from sonda.frameworks.harness.epochs import compile_shapes, drive_epochs
from sonda.frameworks.reconstruction.assembly import assemble
from sonda.record.training import FINAL, read_trained
from sonda.targets.job import Job
from sonda.targets.training.epoch_trainer import train_epochs
from sonda.targets.training.trainer import open_training
from sonda.workloads.data.epoch_batches import EpochBatches
from sonda.workloads.data.prepared import load
from sonda.workloads.data.training_set import TrainingSet, divide
from sonda.workloads.data.training_set import make_ready as make_data_ready
from sonda.workloads.networks.mlp import Perceptron

NETWORK = Perceptron(batch=20, layers=(784, 8, 9))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> TrainingSet:
    """Twenty drawn fish of each of nine kinds: 126 to train on, 18 to validate, 36 to test."""
    place = make_data_ready("drawn", tmp_path_factory.mktemp("store"), (28, 28), 1, images=20)
    return divide(load(place), "0.7/0.1/0.2", seed=3)


class Weighing:
    """Learns nothing: the loss is the mean of the inputs, an answer is right where the class is 0."""

    def __init__(self) -> None:
        self.readied: list[tuple[int, bool]] = []
        self.learnt = 0

    def ready(self, inputs: Any, targets: Any, train: bool) -> None:
        self.readied.append((len(targets), train))

    def learn(self, inputs: Any, targets: Any) -> float:
        self.learnt += 1
        return float(inputs.mean())

    def judge(self, inputs: Any, targets: Any) -> tuple[float, int]:
        return float(inputs.mean()), int((targets.argmax(1) == 0).sum())

    def arrays(self) -> dict[str, np.ndarray]:
        return {"0.weight": np.full((8, 784), self.learnt, dtype=np.float32)}


def observer(place: Path) -> AnnouncedObserver:
    made = AnnouncedObserver(Recorder(str(place)), None, "PerceptronNet")
    made.open({"framework": "0"}, 1)
    return made


def test_batches_are_those_that_pytorch_is_given(data: TrainingSet) -> None:
    torch = pytest.importorskip("torch")
    from sonda.frameworks.torch.drive.learner import SingleLearner
    from sonda.workloads.in_torch.training_images import TrainingImages

    torch.set_num_threads(1)
    task = NETWORK.in_torch(True, 3)
    theirs = SingleLearner(task, TrainingImages(data, NETWORK, 3), NETWORK.batch)
    ours = EpochBatches(data, NETWORK, 3)
    for part, epoch in (("train", 0), ("train", 1), ("validate", 0), ("test", 2)):
        assert ours.steps(part) == theirs.steps(part)
        for (inputs, targets), batch in zip(ours.batches(part, epoch), theirs.batches(part, epoch), strict=True):
            assert np.array_equal(inputs, batch.inputs[0].numpy())
            assert np.array_equal(targets, batch.target.numpy())


def test_classes_are_numbers_under_cross_entropy_and_images_keep_their_shape(data: TrainingSet) -> None:
    from sonda.workloads.networks.cnn import ConvNet

    scored = Perceptron(batch=20, layers=(784, 8, 9), loss="cross_entropy")
    inputs, targets = next(EpochBatches(data, scored, 3).batches("test", 0))
    assert inputs.shape == (20, 784) and targets.shape == (20,) and targets.dtype == np.int64
    network = ConvNet(image=(28, 28), channels=1, classes=9, batch=5)
    images, _ = next(EpochBatches(data, network, 3, "float64").batches("validate", 0))
    assert images.shape == (5, 1, 28, 28) and images.dtype == np.float64


def test_every_shape_is_compiled_before_the_first_epoch_and_once(data: TrainingSet, tmp_path: Path) -> None:
    """126 images are six batches of 20 and one of 6; 18 are one; 36 are one of 20 and one of 16."""
    learner, announced = Weighing(), observer(tmp_path)
    compile_shapes(learner, EpochBatches(data, NETWORK, 3), announced)
    assert learner.readied == [(20, True), (6, True), (18, False), (20, False), (16, False)] and not learner.learnt


def test_walks_have_means_over_their_samples_and_shares_of_right_answers(data: TrainingSet, tmp_path: Path) -> None:
    announced, batches = observer(tmp_path), EpochBatches(data, NETWORK, 3)
    course = Course(2, {part: len(numbers) for part, numbers in data.shares.items()})
    begin = now()
    walks = drive_epochs(Weighing(), batches, announced, course)
    announced.finish(1)
    announced.recorder.close()
    assert [(walk.part, walk.epoch, walk.samples) for walk in walks] == [
        ("train", 0, 126), ("validate", 0, 18), ("train", 1, 126), ("validate", 1, 18), ("test", 2, 36),
    ]  # fmt: skip
    images = data.prepared.images.astype(np.float64)
    test = data.shares["test"]
    assert walks[-1].loss == pytest.approx(images[test].mean(), rel=1e-5)
    assert walks[-1].accuracy == np.mean(data.prepared.labels[test] == 0)
    assert walks[0].accuracy is None and walks[0].loss == pytest.approx(images[data.shares["train"]].mean(), rel=1e-5)
    spans = assemble(tmp_path, begin, now()).spans
    names = spans.words("name").decoded()
    assert [names[row] for row in np.flatnonzero(spans.where(kind="epoch"))] == [
        "train", "validate", "train", "validate", "test",
    ]  # fmt: skip
    phases = [names[row] for row in np.flatnonzero(spans.where(kind="phase"))]
    assert (phases.count("data"), phases.count("fused"), phases.count("forward")) == (18, 14, 4)


def test_a_long_training_stays_bounded(data: TrainingSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(announced_epochs, "RECORDED", 7)
    announced, learner = observer(tmp_path), Weighing()
    begin = now()
    drive_epochs(
        learner, EpochBatches(data, NETWORK, 3), announced, Course(4, {"train": 126, "validate": 0, "test": 0})
    )
    announced.finish(1)
    announced.recorder.close()
    assembly = assemble(tmp_path, begin, now())
    assert learner.learnt == 28 and assembly.spans.where(kind="step").sum() == 7
    assert assembly.spans.where(kind="epoch").sum() == 4
    assert assembly.notes == ["steps and phases recorded for the first 7 steps only"]


def test_a_training_leaves_its_walks_and_weights(data: TrainingSet, tmp_path: Path) -> None:
    place = str(data.prepared.directory)
    job = Job(workload="mlp", framework="jax", train=True, epochs=2, split="0.7/0.1/0.2", seed=3,
              options={"batch": "20"}, data=place, checkpoint=str(tmp_path / "kept"))  # fmt: skip
    (tmp_path / "kept").mkdir()
    opened = open_training(job)
    announced, learner = observer(tmp_path), Weighing()
    train_epochs(job, tmp_path, opened, learner, announced)
    announced.finish(1)
    announced.recorder.close()
    trained = read_trained(tmp_path)
    assert trained is not None and len(trained.walks) == 5 and trained.initialisation_ns > 0
    assert trained.images == {"train": 126, "validate": 18, "test": 36} and trained.resumed == 0
    with np.load(tmp_path / "kept" / FINAL) as arrays:
        assert (arrays["0.weight"] == 14).all()
    spans = assemble(tmp_path, 0, now()).spans
    # 2·20·(784·192 + 192·9) forward; see test_network_cost for the rest.
    first = spans.metric("flops", "nominal")[spans.where(kind="op", pass_="count")]
    assert first[0] == 2 * 20 * 784 * 192 + 20 * 192
