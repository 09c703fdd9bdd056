"""Names of layers as a person can read them: paths and families."""

from __future__ import annotations

import pytest

from sonda.report.words.names import LONGEST_PATH, layer_label, name_layers, short_path


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("layers.3.attention.query", "layers.3.attention.query"),
        (".".join(["inner"] * 2000 + ["lin"]), "inner×2000.lin"),
        (".".join(["a", "b"] * 30), None),
        ("x" * 300, None),
        (".".join(f"part{number}" for number in range(50)), None),
    ],
)
def test_a_path_is_short_and_both_its_ends_are_seen(path: str, shown: str | None) -> None:
    text = short_path(path)
    assert len(text) <= LONGEST_PATH
    if shown is not None:
        assert text == shown
    first, last = path.split(".")[0][:10], path.split(".")[-1][-10:]
    assert text.startswith(first) and text.endswith(last)


def test_depths_of_equal_names_are_told_apart() -> None:
    assert short_path(".".join(["inner"] * 40 + ["lin"])) != short_path(".".join(["inner"] * 41 + ["lin"]))


def test_the_model_itself_has_its_class() -> None:
    assert layer_label("", "Net") == "(Net)"


@pytest.mark.parametrize(
    ("class_name", "single", "several"),
    [
        ("Conv2d", "convolution", "convolutions"), ("EmbeddingBag", "embedding bag", "embedding bags"),
        ("Softmax", "softmax", "softmaxes"), ("CrossEntropyLoss", "loss", "losses"),
        ("BatchNorm2d", "normalisation", "normalisations"), ("ReLU", "activation", "activations"),
        ("MaxPool2d", "pooling", "poolings"), ("Bottleneck", "Bottleneck", "Bottleneck"),
    ],
)  # fmt: skip
def test_layers_are_named_by_their_family_and_unknown_ones_by_their_class(
    class_name: str, single: str, several: str
) -> None:
    assert (name_layers(class_name, 1), name_layers(class_name)) == (single, several)
