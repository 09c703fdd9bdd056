"""Layers that belong to no framework, and layers that hold others: the trees that define networks.

Names of classes, children and weights are PyTorch's, so that a layer has one path in every framework:
`stages.0.1.body.3`. Shapes of weights are PyTorch's too: convolutions output x input x height x width, dense layers
output x input. A framework builds a network by the class of each layer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Layer:
    """A layer, or several layers put together."""

    @property
    def class_name(self) -> str:
        """The class of its module in PyTorch."""
        return type(self).__name__

    def children(self) -> tuple[tuple[str, Layer], ...]:
        """The layers that it holds, by name, in the order in which PyTorch lists them."""
        return ()

    def parameters(self) -> dict[str, Shape]:
        """Shapes of its own weights that training changes by gradients, by name."""
        return {}

    def buffers(self) -> dict[str, Shape]:
        """Shapes of its own values that training changes in another way, by name."""
        return {}


# ---- layers -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Linear(Layer):
    inputs: int
    outputs: int
    bias: bool = True
    initial: str = "uniform"
    """How weights begin; see `weights.py`."""
    shared: str = ""
    """Path of the weight that stands in place of its own."""

    def parameters(self) -> dict[str, Shape]:
        weight: dict[str, Shape] = {} if self.shared else {"weight": (self.outputs, self.inputs)}
        return {**weight, "bias": (self.outputs,)} if self.bias else weight


@dataclass(frozen=True)
class Conv2d(Layer):
    """Square kernels; `padding` on every side."""

    inputs: int
    outputs: int
    kernel: int
    stride: int = 1
    padding: int = 0
    bias: bool = True
    initial: str = "uniform"

    def parameters(self) -> dict[str, Shape]:
        weight: dict[str, Shape] = {"weight": (self.outputs, self.inputs, self.kernel, self.kernel)}
        return {**weight, "bias": (self.outputs,)} if self.bias else weight


@dataclass(frozen=True)
class BatchNorm2d(Layer):
    """By the batch's own mean and (biased) variance in training, by running ones in inference.

    Training moves a running value by `momentum` of its distance from the batch's; the running variance is the unbiased
    one.
    """

    channels: int
    epsilon: float = 1e-5
    momentum: float = 0.1

    def parameters(self) -> dict[str, Shape]:
        return {"weight": (self.channels,), "bias": (self.channels,)}

    def buffers(self) -> dict[str, Shape]:
        return {"running_mean": (self.channels,), "running_var": (self.channels,)}


@dataclass(frozen=True)
class LayerNorm(Layer):
    """Over the last axis, by its mean and biased variance."""

    width: int
    epsilon: float = 1e-5

    def parameters(self) -> dict[str, Shape]:
        return {"weight": (self.width,), "bias": (self.width,)}


@dataclass(frozen=True)
class Embedding(Layer):
    rows: int
    width: int

    def parameters(self) -> dict[str, Shape]:
        return {"weight": (self.rows, self.width)}


@dataclass(frozen=True)
class MaxPool2d(Layer):
    """The maximum of a window; padding is never the maximum."""

    kernel: int
    stride: int
    padding: int = 0


@dataclass(frozen=True)
class AdaptiveAvgPool2d(Layer):
    """The mean over height and width, which stay as axes of length 1."""


@dataclass(frozen=True)
class Flatten(Layer):
    """All axes but the first as one: channels, then height, then width."""


@dataclass(frozen=True)
class ReLU(Layer):
    in_place: bool = False
    """Whether it overwrites its input, where the framework can: PyTorch then needs less memory."""


@dataclass(frozen=True)
class Sigmoid(Layer):
    pass


@dataclass(frozen=True)
class Tanh(Layer):
    pass


@dataclass(frozen=True)
class GELU(Layer):
    """The exact one, by the error function."""


@dataclass(frozen=True)
class Softmax(Layer):
    """Of rows x classes, over the classes."""


# ---- put together -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sequential(Layer):
    """Layers one after the other; with no layers the output is the input."""

    layers: tuple[tuple[str, Layer], ...] = ()
    named: str = "Sequential"
    """The name of its class, for display only."""

    @property
    def class_name(self) -> str:
        return self.named

    def children(self) -> tuple[tuple[str, Layer], ...]:
        return self.layers


@dataclass(frozen=True)
class Residual(Layer):
    """activation(body(x) + shortcut(x))."""

    body: Sequential
    shortcut: Sequential
    activation: Layer
    named: str = "Residual"

    @property
    def class_name(self) -> str:
        return self.named

    def children(self) -> tuple[tuple[str, Layer], ...]:
        return ("body", self.body), ("shortcut", self.shortcut), ("activation", self.activation)


@dataclass(frozen=True)
class Attention(Layer):
    """Each token looks at itself and at those before it.

    `project` gives queries, keys and values, one behind the other, each as heads x (width / heads).
    """

    heads: int
    project: Linear
    output: Linear

    def children(self) -> tuple[tuple[str, Layer], ...]:
        return ("project", self.project), ("output", self.output)


@dataclass(frozen=True)
class Block(Layer):
    """x = x + attention(before_attention(x)), then x + perceptron(before_perceptron(x))."""

    before_attention: LayerNorm
    attention: Attention
    before_perceptron: LayerNorm
    perceptron: Sequential

    def children(self) -> tuple[tuple[str, Layer], ...]:
        return (
            ("before_attention", self.before_attention), ("attention", self.attention),
            ("before_perceptron", self.before_perceptron), ("perceptron", self.perceptron),
        )  # fmt: skip


@dataclass(frozen=True)
class ModuleList(Layer):
    """A list of layers. The layer that holds the list runs them one by one, so the list has no time of its own."""

    layers: tuple[Layer, ...]

    def children(self) -> tuple[tuple[str, Layer], ...]:
        return tuple((str(number), layer) for number, layer in enumerate(self.layers))


@dataclass(frozen=True)
class Gpt(Layer):
    """head(norm(blocks(tokens(t) + positions(0, 1, …))))."""

    tokens: Embedding
    positions: Embedding
    blocks: ModuleList
    norm: LayerNorm
    head: Linear

    def children(self) -> tuple[tuple[str, Layer], ...]:
        return (
            ("tokens", self.tokens), ("positions", self.positions), ("blocks", self.blocks),
            ("norm", self.norm), ("head", self.head),
        )  # fmt: skip


def make_sequential(*layers: Layer, named: str = "Sequential") -> Sequential:
    """Layers one after the other, named by their numbers."""
    return Sequential(tuple((str(number), layer) for number, layer in enumerate(layers)), named)


def join_path(path: str, name: str) -> str:
    """The path of a layer, or of a weight, inside the layer at `path`; '' is the network itself."""
    return f"{path}.{name}" if path else name


def walk_layers(layer: Layer, path: str = "") -> Iterator[tuple[str, Layer]]:
    """Every layer with its path, in the order of PyTorch's `named_modules`: a layer before those that it holds."""
    yield path, layer
    for name, child in layer.children():
        yield from walk_layers(child, join_path(path, name))


def classes_by_path(network: Layer) -> dict[str, str]:
    """The class of every layer by its path; that of the network itself at ''."""
    return {path: layer.class_name for path, layer in walk_layers(network)}
