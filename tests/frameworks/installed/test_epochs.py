"""Whole epochs: every framework learns the same from the same images in the same order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from sonda.workloads.data.epoch_batches import EpochBatches
from sonda.workloads.data.prepared import load
from sonda.workloads.data.training_set import TrainingSet, divide, make_ready
from sonda.workloads.networks.mlp import Perceptron

torch = pytest.importorskip("torch")
SEED = 3
TOLERANCE = 1e-5
NETWORK = Perceptron(batch=20, layers=(784, 16, 9), loss="cross_entropy", activation="tanh", learning_rate=0.1)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> TrainingSet:
    """126 drawn fish to train on, 36 to test."""
    place = make_ready("drawn", tmp_path_factory.mktemp("store"), (28, 28), 1, images=20)
    return divide(load(place), "0.7/0.1/0.2", seed=SEED)


@pytest.fixture(scope="module")
def expected(data: TrainingSet) -> tuple[dict[str, np.ndarray], float, int]:
    """Weights after two epochs in PyTorch, loss and right answers of the first batch of the test."""
    from sonda.frameworks.torch.drive.learner import SingleLearner
    from sonda.workloads.in_torch.training_images import TrainingImages

    task: Any = NETWORK.in_torch(True, SEED)
    learner, optimizer = SingleLearner(task, TrainingImages(data, NETWORK, SEED), NETWORK.batch), task.optimizer()
    for epoch in range(2):
        for batch in learner.batches("train", epoch):
            optimizer.zero_grad()
            task.loss(task.model(*batch.inputs), batch.target).backward()
            optimizer.step()
    with torch.no_grad():
        batch = next(learner.batches("test", 0))
        output = task.model(*batch.inputs)
        loss, right = task.loss(output, batch.target).item(), int((output.argmax(1) == batch.labels).sum())
    return {name: values.numpy() for name, values in task.model.state_dict().items()}, loss, right


def jax_learner() -> Any:
    jax = pytest.importorskip("jax")
    from sonda.workloads.in_jax.learner import JaxLearner

    return JaxLearner(NETWORK, SEED, "float32", jax.devices("cpu")[0])


def tensorflow_learner() -> Any:
    pytest.importorskip("tensorflow")
    from sonda.workloads.in_tensorflow.learner import TensorflowLearner

    return TensorflowLearner(NETWORK, SEED, "float32", False)


def pytensor_learner() -> Any:
    pytest.importorskip("pytensor")
    from sonda.workloads.in_pytensor.learner import PyTensorLearner

    return PyTensorLearner(NETWORK, SEED, "float32")


@pytest.fixture
def quickly() -> Iterator[None]:
    """PyTensor without compiling, where it is there."""
    try:
        import pytensor
    except ImportError:
        yield
        return
    with pytensor.config.change_flags(mode="FAST_COMPILE", floatX="float32"):
        yield


@pytest.mark.usefixtures("quickly")
@pytest.mark.parametrize("make", [jax_learner, tensorflow_learner, pytensor_learner], ids=lambda one: one.__name__)
def test_two_epochs_end_with_the_weights_of_pytorch(
    make: Callable[[], Any], data: TrainingSet, expected: tuple[dict[str, np.ndarray], float, int]
) -> None:
    learner, batches = make(), EpochBatches(data, NETWORK, SEED)
    for part, sizes in batches.sizes().items():
        for size in sizes:
            learner.ready(*batches.made(batches.chosen(part, 0)[0][:size]), train=part == "train")
    for epoch in range(2):
        for inputs, targets in batches.batches("train", epoch):
            learner.learn(inputs, targets)
    weights, loss, right = expected
    found = learner.arrays()
    assert set(found) == set(weights)
    for name, values in weights.items():
        assert np.abs(found[name] - values).max() <= TOLERANCE * np.abs(values).max(), name
    judged, hits = learner.judge(*next(batches.batches("test", 0)))
    assert float(judged) == pytest.approx(loss, rel=TOLERANCE) and int(hits) == right
