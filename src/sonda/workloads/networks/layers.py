"""Layers that no framework owns, and how they are put together: the trees that networks are defined by.

Names of classes, children and weights are PyTorch's, so that a layer has one path in every framework:
`stages.0.1.body.3`. Shapes of weights are PyTorch's too: convolutions output x input x height x width, dense layers
output x input. A framework builds a network by the class of each node.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Node:
    """A layer, or several put together."""

    @property
    def class_name(self) -> str:
        """The class of its module in PyTorch."""
        return type(self).__name__

    def children(self) -> tuple[tuple[str, Node], ...]:
        """What it is put together of, by name, in the order in which PyTorch lists them."""
        return ()

    def parameters(self) -> dict[str, Shape]:
        """Its own weights that training changes by gradients, by name: their shapes."""
        return {}

    def buffers(self) -> dict[str, Shape]:
        """Its own values that training changes otherwise, by name: their shapes."""
        return {}


# ---- layers -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Linear(Node):
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
class Conv2d(Node):
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
class BatchNorm2d(Node):
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
class LayerNorm(Node):
    """Over the last axis, by its mean and biased variance."""

    width: int
    epsilon: float = 1e-5

    def parameters(self) -> dict[str, Shape]:
        return {"weight": (self.width,), "bias": (self.width,)}


@dataclass(frozen=True)
class Embedding(Node):
    rows: int
    width: int

    def parameters(self) -> dict[str, Shape]:
        return {"weight": (self.rows, self.width)}


@dataclass(frozen=True)
class MaxPool2d(Node):
    """Padding never wins."""

    kernel: int
    stride: int
    padding: int = 0


@dataclass(frozen=True)
class AdaptiveAvgPool2d(Node):
    """The mean over height and width, which stay as axes of length 1."""


@dataclass(frozen=True)
class Flatten(Node):
    """All axes but the first as one: channels, then height, then width."""


@dataclass(frozen=True)
class ReLU(Node):
    in_place: bool = False
    """Overwrites its input, where the framework can: PyTorch then needs less memory."""


@dataclass(frozen=True)
class Sigmoid(Node):
    pass


@dataclass(frozen=True)
class Tanh(Node):
    pass


@dataclass(frozen=True)
class GELU(Node):
    """The exact one, by the error function."""


@dataclass(frozen=True)
class Softmax(Node):
    """Of rows x classes, over the classes."""


# ---- put together -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sequential(Node):
    """One after the other; with nothing inside it gives what it is given."""

    layers: tuple[tuple[str, Node], ...] = ()
    named: str = "Sequential"
    """Its class; what it does does not hang on it."""

    @property
    def class_name(self) -> str:
        return self.named

    def children(self) -> tuple[tuple[str, Node], ...]:
        return self.layers


@dataclass(frozen=True)
class Residual(Node):
    """activation(body(x) + shortcut(x))."""

    body: Sequential
    shortcut: Sequential
    activation: Node
    named: str = "Residual"

    @property
    def class_name(self) -> str:
        return self.named

    def children(self) -> tuple[tuple[str, Node], ...]:
        return ("body", self.body), ("shortcut", self.shortcut), ("activation", self.activation)


@dataclass(frozen=True)
class Attention(Node):
    """Each token looks at itself and at those before it.

    `project` gives queries, keys and values, one behind the other, each as heads x (width / heads).
    """

    heads: int
    project: Linear
    output: Linear

    def children(self) -> tuple[tuple[str, Node], ...]:
        return ("project", self.project), ("output", self.output)


@dataclass(frozen=True)
class Block(Node):
    """x = x + attention(before_attention(x)), then x + perceptron(before_perceptron(x))."""

    before_attention: LayerNorm
    attention: Attention
    before_perceptron: LayerNorm
    perceptron: Sequential

    def children(self) -> tuple[tuple[str, Node], ...]:
        return (
            ("before_attention", self.before_attention), ("attention", self.attention),
            ("before_perceptron", self.before_perceptron), ("perceptron", self.perceptron),
        )  # fmt: skip


@dataclass(frozen=True)
class ModuleList(Node):
    """A place for nodes; whoever holds it runs them one by one, so that it has no time of its own."""

    layers: tuple[Node, ...]

    def children(self) -> tuple[tuple[str, Node], ...]:
        return tuple((str(number), layer) for number, layer in enumerate(self.layers))


@dataclass(frozen=True)
class Gpt(Node):
    """head(norm(blocks(tokens(t) + positions(0, 1, …))))."""

    tokens: Embedding
    positions: Embedding
    blocks: ModuleList
    norm: LayerNorm
    head: Linear

    def children(self) -> tuple[tuple[str, Node], ...]:
        return (
            ("tokens", self.tokens), ("positions", self.positions), ("blocks", self.blocks),
            ("norm", self.norm), ("head", self.head),
        )  # fmt: skip


def in_order(*nodes: Node, named: str = "Sequential") -> Sequential:
    """Nodes one after the other, called by their numbers."""
    return Sequential(tuple((str(number), node) for number, node in enumerate(nodes)), named)


def join(path: str, name: str) -> str:
    """The path of a node, or of a weight, inside the one at `path`; '' is the network itself."""
    return f"{path}.{name}" if path else name


def walk(node: Node, path: str = "") -> Iterator[tuple[str, Node]]:
    """Every node with its path, a holder before what it holds, as PyTorch's `named_modules` lists them."""
    yield path, node
    for name, child in node.children():
        yield from walk(child, join(path, name))


def classes_by_path(network: Node) -> dict[str, str]:
    """The class of every node; that of the network itself at ''."""
    return {path: node.class_name for path, node in walk(network)}
