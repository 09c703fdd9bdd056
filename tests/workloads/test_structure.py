"""The networks without a framework: held against PyTorch's modules, layer by layer and weight by weight."""

from __future__ import annotations

from itertools import islice
from math import sqrt

import numpy as np
import pytest
import torch

from sonda.record.errors import SondaError
from sonda.workloads.catalogue import describe
from sonda.workloads.networks.examples import batch_numbers, synthetic_examples
from sonda.workloads.networks.layers import walk_layers
from sonda.workloads.networks.network import require_network
from sonda.workloads.networks.weights import initial_weights

NETWORKS = {
    "mlp": {"batch": "3", "layers": "7-5-4"},
    "mlp relu": {"batch": "3", "layers": "7-6-5-4", "activation": "relu", "loss": "cross_entropy"},
    "mlp tanh": {"batch": "3", "layers": "5-4", "activation": "tanh"},
    "cnn": {"batch": "2", "image": "18x21", "channels": "1", "filters": "2-3-4", "hidden": "5", "classes": "3"},
    "resnet18": {"batch": "2", "image": "33x17", "channels": "1", "classes": "4"},
    "resnet34": {"batch": "2", "image": "8x8", "classes": "4"},
    "resnet50": {"batch": "2", "image": "9x40", "classes": "4"},
    "transformer": {"batch": "2", "length": "6", "generate": "4", "layers": "2", "width": "8", "vocabulary": "11"},
}
SETTINGS = {
    "Linear": {"inputs": "in_features", "outputs": "out_features"},
    "Conv2d": {"inputs": "in_channels", "outputs": "out_channels", "kernel": "kernel_size", "stride": "stride",
               "padding": "padding"},
    "BatchNorm2d": {"channels": "num_features", "epsilon": "eps", "momentum": "momentum"},
    "LayerNorm": {"width": "normalized_shape", "epsilon": "eps"},
    "Embedding": {"rows": "num_embeddings", "width": "embedding_dim"},
    "MaxPool2d": {"kernel": "kernel_size", "stride": "stride", "padding": "padding"},
    "Attention": {"heads": "heads"},
}  # fmt: skip
"""Attributes of nodes and of PyTorch's modules that must be equal, by class."""


def described(name: str) -> object:
    return describe(name.partition(" ")[0], NETWORKS[name])


@pytest.fixture(params=NETWORKS)
def network(request: pytest.FixtureRequest) -> tuple:
    """A description and its module in PyTorch, built with seed 3."""
    description = described(request.param)
    return description, description.in_torch(False, 3).model  # type: ignore[attr-defined]


def test_paths_classes_and_settings_are_those_of_pytorch(network: tuple) -> None:
    description, model = network
    layers = list(walk_layers(description.structure()))
    modules = dict(model.named_modules())
    assert [(path, layer.class_name) for path, layer in layers] == [
        (path, type(module).__name__) for path, module in modules.items()
    ]
    for path, layer in layers:
        for ours, theirs in SETTINGS.get(layer.class_name, {}).items():
            value = getattr(modules[path], theirs)
            # PyTorch writes squares as pairs and shapes as tuples.
            assert getattr(layer, ours) == (value[0] if isinstance(value, tuple) else value), (path, ours)


def test_weights_have_the_names_order_shapes_and_values_of_pytorch(network: tuple) -> None:
    description, model = network
    ours = initial_weights(description, 3)
    shared = {"head.weight"} if description.name == "transformer" else set()
    theirs = {name: values for name, values in model.state_dict().items()
              if not name.endswith("num_batches_tracked") and name not in shared}  # fmt: skip
    assert list(ours) == list(theirs)
    for name, values in ours.items():
        assert values.dtype == np.float32
        assert np.array_equal(values, theirs[name].numpy()), name
    learnt = {
        f"{path}.{name}".lstrip(".")
        for path, layer in walk_layers(description.structure())
        for name in layer.parameters()
    }
    assert learnt == {name for name, _ in model.named_parameters()}


def test_shared_weights_are_one() -> None:
    model = described("transformer").in_torch(True, 0).model  # type: ignore[attr-defined]
    assert model.head.weight is model.tokens.weight


@pytest.mark.parametrize(
    ("name", "options", "weight", "deviation", "bound"),
    [
        # A uniform distribution within b has the deviation b / sqrt(3); 784 inputs, and 3 x 3 x 3.
        ("mlp", {}, "0.weight", 1 / sqrt(784) / sqrt(3), 1 / sqrt(784)),
        ("mlp", {"layers": "16-9000"}, "0.bias", 1 / 4 / sqrt(3), 1 / 4),
        ("cnn", {"filters": "900-1-1"}, "features.0.weight", 1 / sqrt(27) / sqrt(3), 1 / sqrt(27)),
        # He: 2 / (64 outputs x 3 x 3).
        ("resnet18", {}, "stages.0.0.body.0.weight", sqrt(2 / (64 * 9)), None),
        ("transformer", {}, "tokens.weight", 0.02, None),
        ("transformer", {}, "blocks.1.attention.project.weight", 0.02, None),
    ],
)
def test_distributions_are_those_of_the_papers(
    name: str, options: dict[str, str], weight: str, deviation: float, bound: float | None
) -> None:
    values = initial_weights(describe(name, options), 0)[weight]
    # Both bounds are five standard errors or more of this many values.
    assert values.std() == pytest.approx(deviation, rel=5 / sqrt(values.size))
    assert abs(values.mean()) < 5 * deviation / sqrt(values.size)
    if bound is not None:
        assert bound * 0.99 < np.abs(values).max() <= np.float32(bound)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_seed_fixes_weights_and_data(name: str) -> None:
    description = described(name)
    first, again, different = (initial_weights(description, seed) for seed in (5, 5, 6))
    assert all(np.array_equal(first[key], again[key]) for key in first)
    assert any(not np.array_equal(first[key], different[key]) for key in first)
    inputs, targets = synthetic_examples(description, 5)
    others, _ = synthetic_examples(description, 6)
    assert not np.array_equal(inputs, others) and len(inputs) == len(targets) == 4 * description.batch  # type: ignore[attr-defined]


def test_examples_are_those_that_pytorch_is_given(network: tuple) -> None:
    description, _ = network
    task = description.in_torch(True, 3)
    inputs, targets = synthetic_examples(description, 3)
    assert torch.equal(task.inputs[0], torch.from_numpy(inputs[: description.batch]))
    for (loaded, target), numbers in zip(
        islice(task.batches(0), 6), batch_numbers(len(targets), description.batch, 3), strict=False
    ):
        assert np.array_equal(loaded[0].numpy(), inputs[numbers])
        assert np.array_equal(target.numpy(), targets[numbers])


def test_targets_fit_the_loss() -> None:
    _, rows = synthetic_examples(describe("mlp", {"batch": "5", "layers": "3-4"}), 1)
    _, classes = synthetic_examples(describe("mlp", {"batch": "5", "layers": "3-4", "loss": "cross_entropy"}), 1)
    assert rows.dtype == np.float32 and classes.dtype == np.int64
    assert np.array_equal(rows.argmax(1), classes) and np.array_equal(rows.sum(1), np.ones(20))
    text, following = synthetic_examples(describe("transformer", {"length": "5"}), 1)
    assert np.array_equal(text[:, 1:], following[:, :-1])


def test_batches_go_through_all_examples_before_any_comes_again() -> None:
    batches = list(islice(batch_numbers(7, 3, 0), 7))
    order = np.concatenate(batches)
    for begin in (0, 7, 14):
        assert sorted(order[begin : begin + 7]) == list(range(7))
    assert not np.array_equal(order[:7], order[7:14])


@pytest.mark.parametrize("name", ["lstm", "dlrm", "ops"])
def test_another_workload_is_no_network_of_every_framework(name: str) -> None:
    with pytest.raises(SondaError, match=f"{name} is not there as a network of every framework; use mlp"):
        require_network(describe(name, {}))
