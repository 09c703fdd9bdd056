"""The built-in networks as trees that no framework owns: what each layer is, and how layers are put together.

Classes, attributes, names of children and of weights are those of the modules in `in_torch`, so that a layer has one
path in every framework: `stages.0.1.body.3`. Shapes of weights are PyTorch's too: convolutions output x input x height
x width, dense layers output x input. A framework builds from `structure_of`, by the class of each node.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from sonda.record.errors import SondaError
from sonda.workloads.convnet import ConvNet
from sonda.workloads.description import Description
from sonda.workloads.perceptron import Perceptron
from sonda.workloads.resnet import BLOCKS, BOTTLENECK_FROM, ResNet
from sonda.workloads.transformer import Transformer

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
    pass


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
    """Over the last axis."""


# ---- put together -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sequential(Node):
    """One after the other; with nothing inside it gives what it is given."""

    layers: tuple[tuple[str, Node], ...] = ()
    named: str = "Sequential"

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
    activation: Node = field(default_factory=ReLU)
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


def join(path: str, name: str) -> str:
    """The path of a node, or of a weight, inside the one at `path`; '' is the network itself."""
    return f"{path}.{name}" if path else name


def walk(node: Node, path: str = "") -> Iterator[tuple[str, Node]]:
    """Every node with its path, a holder before what it holds, as PyTorch's `named_modules` lists them."""
    yield path, node
    for name, child in node.children():
        yield from walk(child, join(path, name))


# ---- the networks -------------------------------------------------------------------------------------------------


def structure_of(description: Description) -> Node:
    """The network that a description asks for. Raises SondaError for a workload that is no such network."""
    if isinstance(description, Perceptron):
        return _perceptron(description)
    if isinstance(description, ConvNet):
        return _convnet(description)
    if isinstance(description, ResNet):
        return _resnet(description)
    if isinstance(description, Transformer):
        return _transformer(description)
    raise SondaError(
        f"{description.name} is not there as a network of every framework",
        "use mlp, cnn, resnet18, resnet34, resnet50 or transformer, or --framework torch",
    )


ACTIVATIONS = {"sigmoid": Sigmoid(), "relu": ReLU(), "tanh": Tanh()}


def _numbered(*nodes: Node, named: str = "Sequential") -> Sequential:
    return Sequential(tuple((str(number), node) for number, node in enumerate(nodes)), named)


def _perceptron(description: Perceptron) -> Sequential:
    layers: list[Node] = []
    for inputs, outputs in pairwise(description.layers):
        layers += [Linear(inputs, outputs), ACTIVATIONS[description.activation]]
    layers[-1:] = [Softmax()] if description.loss == "mse" else []
    return _numbered(*layers, named="PerceptronNet")


def _convnet(description: ConvNet) -> Sequential:
    first, second, third = description.filters
    height, width = description.map_size()
    features = _numbered(
        Conv2d(description.channels, first, 3), ReLU(), MaxPool2d(2, 2),
        Conv2d(first, second, 3), ReLU(), MaxPool2d(2, 2),
        Conv2d(second, third, 3), ReLU(),
    )  # fmt: skip
    hidden = Linear(third * height * width, description.hidden)
    classifier = _numbered(Flatten(), hidden, ReLU(), Linear(description.hidden, description.classes))
    return Sequential((("features", features), ("classifier", classifier)), "ConvolutionalNet")


def _convolution(inputs: int, outputs: int, kernel: int, stride: int = 1) -> Conv2d:
    """Padded so that stride 1 keeps the size; without bias, as a normalisation follows."""
    return Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False, initial="fan_out")


def _residual(inputs: int, width: int, stride: int) -> Residual:
    body = _numbered(
        _convolution(inputs, width, 3, stride), BatchNorm2d(width), ReLU(),
        _convolution(width, width, 3), BatchNorm2d(width),
    )  # fmt: skip
    return Residual(body, _shortcut(inputs, width, stride))


def _bottleneck(inputs: int, width: int, stride: int) -> Residual:
    body = _numbered(
        _convolution(inputs, width, 1), BatchNorm2d(width), ReLU(),
        _convolution(width, width, 3, stride), BatchNorm2d(width), ReLU(),
        _convolution(width, 4 * width, 1), BatchNorm2d(4 * width),
    )  # fmt: skip
    return Residual(body, _shortcut(inputs, 4 * width, stride), named="Bottleneck")


def _shortcut(inputs: int, outputs: int, stride: int) -> Sequential:
    if stride == 1 and inputs == outputs:
        return Sequential()
    return _numbered(_convolution(inputs, outputs, 1, stride), BatchNorm2d(outputs))


def _resnet(description: ResNet) -> Sequential:
    deep = description.depth >= BOTTLENECK_FROM
    make, expansion = (_bottleneck, 4) if deep else (_residual, 1)
    stem = _numbered(_convolution(description.channels, 64, 7, 2), BatchNorm2d(64), ReLU(), MaxPool2d(3, 2, 1))
    width = 64
    stages = []
    for stage, count in enumerate(BLOCKS[description.depth]):
        blocks = []
        for number in range(count):
            blocks.append(make(width, 64 * 2**stage, 2 if stage and not number else 1))
            width = 64 * 2**stage * expansion
        stages.append(_numbered(*blocks))
    parts = {
        "stem": stem,
        "stages": _numbered(*stages),
        "pool": AdaptiveAvgPool2d(),
        "flatten": Flatten(),
        "classifier": Linear(width, description.classes),
    }
    return Sequential(tuple(parts.items()), "ResidualNet")


def _transformer(description: Transformer) -> Gpt:
    width = description.width

    def dense(inputs: int, outputs: int) -> Linear:
        return Linear(inputs, outputs, initial="small")

    block = Block(
        LayerNorm(width),
        Attention(description.heads, dense(width, 3 * width), dense(width, width)),
        LayerNorm(width),
        _numbered(dense(width, 4 * width), GELU(), dense(4 * width, width)),
    )
    return Gpt(
        Embedding(description.vocabulary, width),
        Embedding(description.context, width),
        ModuleList((block,) * description.layers),
        LayerNorm(width),
        Linear(width, description.vocabulary, bias=False, initial="small", shared="tokens.weight"),
    )
