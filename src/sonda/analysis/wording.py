"""Wording: numbers and names as a sentence says them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

NETWORKS = {
    "ops": "operations", "mlp": "MLP", "cnn": "CNN", "resnet18": "ResNet-18", "resnet34": "ResNet-34",
    "resnet50": "ResNet-50", "lstm": "LSTM", "transformer": "Transformer", "dlrm": "DLRM",
}  # fmt: skip
"""Built-in workloads as papers spell them."""

FRAMEWORKS = {"torch": "PyTorch", "tensorflow": "TensorFlow", "jax": "JAX", "pytensor": "PyTensor"}
"""Frameworks as their makers spell them."""

FAMILIES = (
    ("Conv", "convolution", "convolutions"),
    ("Linear", "linear layer", "linear layers"),
    ("Bilinear", "linear layer", "linear layers"),
    ("MultiheadAttention", "attention", "attentions"),
    ("EmbeddingBag", "embedding bag", "embedding bags"),
    ("Embedding", "embedding", "embeddings"),
    ("LSTM", "recurrent layer", "recurrent layers"),
    ("GRU", "recurrent layer", "recurrent layers"),
    ("RNN", "recurrent layer", "recurrent layers"),
    ("Dropout", "dropout", "dropouts"),
    ("Softmax", "softmax", "softmaxes"),
)
"""Beginnings of PyTorch's class names, and what the layers are called: one, several."""

ENDINGS = (
    ("Loss", "loss", "losses"),
    ("Pool1d", "pooling", "poolings"),
    ("Pool2d", "pooling", "poolings"),
    ("Pool3d", "pooling", "poolings"),
)
MIDDLES = (("Norm", "normalisation", "normalisations"),)

ACTIVATIONS = frozenset(
    {"ReLU", "ReLU6", "LeakyReLU", "PReLU", "RReLU", "ELU", "CELU", "SELU", "GELU", "SiLU", "Mish", "Sigmoid",
     "LogSigmoid", "Tanh", "Hardtanh", "Hardswish", "Hardsigmoid", "Softplus", "Softsign", "GLU", "Threshold"}
)  # fmt: skip

SCALES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
ROUNDED = 0.9995
"""Of a scale: what is more would be rounded to 1,000 of the one below."""


def family(name: str, count: int = 2) -> str:
    """What layers of a class are called: `Conv2d` -> `convolutions`; an unknown class keeps its name."""
    if name in ACTIVATIONS:
        return "activation" if count == 1 else "activations"
    for beginning, singular, several in FAMILIES:
        if name.startswith(beginning):
            return singular if count == 1 else several
    for ending, singular, several in ENDINGS:
        if name.endswith(ending):
            return singular if count == 1 else several
    for middle, singular, several in MIDDLES:
        if middle in name:
            return singular if count == 1 else several
    return name


def percent(share: float) -> str:
    """`0.714` -> `71 %`; small shares keep a digit, and what is there is never 0."""
    value = 100 * share
    if value != value:
        return "an unknown share"
    if 0 < abs(value) < 0.05:
        return "less than 0.1 %"
    return f"{value:.1f} %" if 0 < abs(value) < 9.95 else f"{value:.0f} %"


def interval(low: float | None, high: float | None) -> str:
    """` (74 to 83 %)`, of shares; '' without an interval, or where its ends are one number."""
    if low is None or high is None or percent(low) == percent(high):
        return ""
    return f" ({percent(low).removesuffix(' %')} to {percent(high)})"


def amount(value: float, unit: str) -> str:
    """`3.1e9, "B"` -> `3.1 GB`."""
    for scale, letter in SCALES:
        if value >= ROUNDED * scale:
            return f"{_digits(value / scale)} {letter}{unit}"
    return f"{_digits(value)} {unit}"


def duration(ns: float) -> str:
    """`1.28e6` -> `1.3 ms`."""
    for scale, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if ns >= ROUNDED * scale:
            return f"{_digits(ns / scale)} {unit}"
    return "less than 0.1 ns" if 0 < ns < 0.1 else f"{_digits(ns)} ns"


def plural(count: float, noun: str) -> str:
    """`1 step`, `20 steps`, `1,204 steps`."""
    number = f"{count:,.0f}"
    return f"{number} {noun}{'' if number == '1' else 's'}"


def times(ratio: float) -> str:
    """`4.4 times`, `190 times`."""
    return f"{_digits(ratio)} times"


def join(words: list[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


MOST_PLACES = 3
"""Places of a study that are named."""


def at_places(names: Sequence[str], places: int) -> str:
    """` with cnn and with resnet50`, ` in 5 of 8 places`; nothing where it holds everywhere."""
    named = [name for name in dict.fromkeys(names) if name]
    if len(names) == places or not named:
        return ""
    if len(named) > MOST_PLACES:
        return f" in {len(names)} of {places} places"
    return " " + join([f"with {name}" for name in named])


def _digits(value: float) -> str:
    return f"{value:.0f}" if value >= 99.5 else f"{value:.1f}" if value >= 0.995 else f"{value:.2g}"


LONGEST_PATH = 48
"""Characters of a layer's path that tables and sentences show."""


def short_path(path: str) -> str:
    """A layer's path as a person can read it: what repeats is counted, and of what is still too long the middle goes.

    `inner.inner.lin` stays as it is; with forty times `inner` it is `inner×40.lin`.
    """
    if len(path) <= LONGEST_PATH:
        return path
    counted = [(name, len(list(group))) for name, group in groupby(path.split("."))]
    first, *others = [name if count == 1 else f"{name}×{count}" for name, count in counted]
    if len(".".join((first, *others))) <= LONGEST_PATH:
        return ".".join((first, *others))
    while len(others) > 1 and len(".".join((first, "…", *others))) > LONGEST_PATH:
        del others[0]
    text = ".".join((first, "…", *others) if others else (first,))
    half = LONGEST_PATH // 2
    return text if len(text) <= LONGEST_PATH else f"{text[:half]}…{text[1 - half :]}"


def layer_label(path: str, name: str) -> str:
    """A layer's path; the model itself, which has none, by its class in brackets."""
    return short_path(path) or f"({name})"
