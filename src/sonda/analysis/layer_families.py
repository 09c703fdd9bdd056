"""Families: layers of similar classes, which findings name together."""

from __future__ import annotations

BEGINNINGS = {
    "Conv": "convolution", "Linear": "linear layer", "Bilinear": "linear layer", "MultiheadAttention": "attention",
    "EmbeddingBag": "embedding bag", "Embedding": "embedding", "LSTM": "recurrent layer", "GRU": "recurrent layer",
    "RNN": "recurrent layer", "Dropout": "dropout", "Softmax": "softmax",
}  # fmt: skip
"""By the beginnings of PyTorch's class names."""
ENDINGS = {"Loss": "loss", "Pool1d": "pooling", "Pool2d": "pooling", "Pool3d": "pooling"}
MIDDLES = {"Norm": "normalisation"}
ACTIVATIONS = frozenset(
    {"ReLU", "ReLU6", "LeakyReLU", "PReLU", "RReLU", "ELU", "CELU", "SELU", "GELU", "SiLU", "Mish", "Sigmoid",
     "LogSigmoid", "Tanh", "Hardtanh", "Hardswish", "Hardsigmoid", "Softplus", "Softsign", "GLU", "Threshold"}
)  # fmt: skip


def family_of(name: str) -> str:
    """The family of a class: `Conv2d` is a `convolution`; an unknown class is a family of its own."""
    if name in ACTIVATIONS:
        return "activation"
    for beginning, family in BEGINNINGS.items():
        if name.startswith(beginning):
            return family
    for ending, family in ENDINGS.items():
        if name.endswith(ending):
            return family
    return next((family for middle, family in MIDDLES.items() if middle in name), name)


FAMILIES = frozenset({"activation", *BEGINNINGS.values(), *ENDINGS.values(), *MIDDLES.values()})
