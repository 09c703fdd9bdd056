"""What a step of a built-in network costs by formula, layer by layer, whatever framework runs it.

The conventions are those of the counter of PyTorch's operations (`frameworks/torch/observe/formulas`, where each
formula is derived): a multiply-add is 2 FLOP; +, −, ×, ÷, exp, tanh, sqrt 1 each; comparisons and copies 0. Bytes:
each layer reads its distinct inputs once and writes its outputs once. Tests hold both against what PyTorch counts. They
differ where PyTorch writes what others need not: indices of maxima, row sums of attention, AdamW's intermediate
results.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from sonda.workloads.networks.layers import (
    GELU,
    AdaptiveAvgPool2d,
    Attention,
    BatchNorm2d,
    Block,
    Conv2d,
    Embedding,
    Flatten,
    Gpt,
    LayerNorm,
    Linear,
    MaxPool2d,
    Node,
    ReLU,
    Residual,
    Sequential,
    Shape,
    Sigmoid,
    Softmax,
    Tanh,
    join,
    walk,
)
from sonda.workloads.networks.network import Network
from sonda.workloads.networks.transformer import Transformer

INDEX = 8
"""Bytes of a class or a token."""
ACTIVATIONS: dict[type[Node], tuple[str, int, int]] = {
    ReLU: ("relu", 0, 0),
    Sigmoid: ("sigmoid", 4, 3),
    Tanh: ("tanh", 1, 3),
    GELU: ("gelu", 5, 11),
    Softmax: ("softmax", 4, 4),
}
"""Name, FLOPs of an element forward and backward."""
ADAMW = 14
"""FLOPs of a parameter: decay 1, first moment 3, second moment 4, root, ÷ and + 3, step 3."""


@dataclass(frozen=True)
class LayerCost:
    """One operation of a step: its phase, the layer it belongs to ('' for the network itself), its FLOPs and bytes."""

    phase: str
    path: str
    class_name: str
    operation: str
    flops: int
    bytes: int


def network_costs(network: Network, train: bool, width: int = 4) -> tuple[LayerCost, ...]:
    """Every operation of one step, in order; elements have `width` bytes.

    Training: forward, loss, backward, optimizer. Inference: forward; of the transformer prefill and decode.
    """
    structure = network.structure()
    if isinstance(network, Transformer) and not train:
        return _generation(network, width)
    tally = _Tally(width, train)
    output = tally.visit(structure, "", network.input_shape())
    if not train:
        return tuple(tally.forward)
    tally.loss(network.loss, output)
    backward = [replace(cost, phase="backward") for cost in reversed(tally.backward)]
    return (*tally.forward, *backward, *_updates(structure, network.optimizer, width))


def _generation(network: Transformer, width: int) -> tuple[LayerCost, ...]:
    """The prompt at once, then token after token, each with the keys and values of all before it."""
    structure = network.structure()
    costs: list[LayerCost] = []
    for number in range(network.generate + 1):
        tally = _Tally(width, False, "decode" if number else "prefill")
        tokens, before = (1, network.length + number - 1) if number else (network.length, 0)
        tally.gpt(structure, (network.batch, tokens), before, cached=True)
        costs += tally.forward
    return tuple(costs)


def _updates(network: Node, optimizer: str, width: int) -> list[LayerCost]:
    """SGD reads weight and gradient and writes the weight; AdamW reads and writes two moments beside."""
    flops, moved = (2, 3) if optimizer == "sgd" else (ADAMW, 7)
    found = []
    for path, node in walk(network):
        count = sum(prod(shape) for shape in node.parameters().values())
        if count:
            cost = LayerCost("optimizer", path, node.class_name, optimizer, flops * count, moved * width * count)
            found.append(cost)
    return found


class _Tally:
    """Walks through a network with the shapes of its inputs; `backward` is in the order of the forward."""

    def __init__(self, width: int, train: bool, phase: str = "forward") -> None:
        self.width = width
        self.train = train
        self.phase = phase
        self.forward: list[LayerCost] = []
        self.backward: list[LayerCost] = []
        self.inside = False
        """Whether a layer with weights lies before this one, so that its input has a gradient."""

    def add(self, path: str, node: Node, operation: str, flops: int, elements: int, indices: int = 0) -> None:
        self.forward.append(self._cost(path, node.class_name, operation, flops, elements, indices))

    def back(self, path: str, node: Node, operation: str, flops: int, elements: int, indices: int = 0) -> None:
        if self.train:
            self.backward.append(self._cost(path, node.class_name, operation, flops, elements, indices))

    def _cost(self, path: str, name: str, operation: str, flops: int, elements: int, indices: int) -> LayerCost:
        return LayerCost(self.phase, path, name, operation, flops, self.width * elements + INDEX * indices)

    def visit(self, node: Node, path: str, shape: Shape) -> Shape:
        """Count a node; returns the shape of its output."""
        if isinstance(node, Sequential):
            for name, child in node.children():
                shape = self.visit(child, join(path, name), shape)
            return shape
        if isinstance(node, Residual):
            return self._residual(node, path, shape)
        if isinstance(node, Gpt):
            return self.gpt(node, shape)
        if isinstance(node, Linear):
            return self._linear(node, path, shape)
        if isinstance(node, Conv2d):
            return self._convolution(node, path, shape)
        if isinstance(node, BatchNorm2d):
            return self._batch_norm(node, path, shape)
        if isinstance(node, LayerNorm):
            return self._layer_norm(node, path, shape)
        if isinstance(node, MaxPool2d):
            return self._max_pool(node, path, shape)
        if isinstance(node, AdaptiveAvgPool2d):
            return self._mean_pool(node, path, shape)
        if isinstance(node, Flatten):
            return shape[0], prod(shape[1:])
        name, forward, backward = ACTIVATIONS[type(node)]
        count = prod(shape)
        self.add(path, node, name, forward * count, 2 * count)
        self.back(path, node, f"{name}_backward", backward * count, 3 * count)
        return shape

    def _residual(self, node: Residual, path: str, shape: Shape) -> Shape:
        # What flows back through body and shortcut is added up where both began.
        self.back(path, node, "add", prod(shape), 3 * prod(shape))
        result = self.visit(node.body, f"{path}.body", shape)
        self.visit(node.shortcut, f"{path}.shortcut", shape)
        self.add(path, node, "add", prod(result), 3 * prod(result))
        return self.visit(node.activation, f"{path}.activation", result)

    def _linear(self, node: Linear, path: str, shape: Shape) -> Shape:
        rows = prod(shape[:-1])
        weights, given, made = node.inputs * node.outputs, rows * node.inputs, rows * node.outputs
        product, bias = 2 * rows * weights, node.bias * made
        self.add(path, node, "linear", product + bias, given + weights + made + node.bias * node.outputs)
        if node.bias:
            self.back(path, node, "bias_gradient", made, made + node.outputs)
        self.back(path, node, "weight_gradient", product, made + given + weights)
        if self.inside:
            self.back(path, node, "input_gradient", product, made + weights + given)
        self.inside = True
        return *shape[:-1], node.outputs

    def _convolution(self, node: Conv2d, path: str, shape: Shape) -> Shape:
        batch, _, *sides = shape
        height, width = ((side + 2 * node.padding - node.kernel) // node.stride + 1 for side in sides)
        result = (batch, node.outputs, height, width)
        weights = node.outputs * node.inputs * node.kernel**2
        given, made, bias = prod(shape), prod(result), node.bias * node.outputs
        product = 2 * batch * height * width * weights
        self.add(path, node, "convolution", product + node.bias * made, given + weights + bias + made)
        # Gradients come of one operation: the image is read for the weight's, the weight for the image's.
        flops = product * (1 + self.inside) + node.bias * made
        moved = made + given + weights + bias + self.inside * (weights + given)
        self.back(path, node, "convolution_backward", flops, moved)
        self.inside = True
        return result

    def _batch_norm(self, node: BatchNorm2d, path: str, shape: Shape) -> Shape:
        count, channels = prod(shape), node.channels
        if self.train:
            # Weight, bias, running values read; running values and the batch's own written.
            self.add(path, node, "batch_norm", 6 * count + 15 * channels, 2 * count + 8 * channels)
            self.back(path, node, "batch_norm_backward", 9 * count + 6 * channels, 3 * count + 5 * channels)
        else:
            self.add(path, node, "batch_norm", 2 * count + 6 * channels, 2 * count + 4 * channels)
        return shape

    def _layer_norm(self, node: LayerNorm, path: str, shape: Shape) -> Shape:
        count, rows, width = prod(shape), prod(shape[:-1]), node.width
        self.add(path, node, "layer_norm", 8 * count + 5 * rows, 2 * count + 2 * width + 2 * rows * self.train)
        self.back(path, node, "layer_norm_backward", 13 * count + 2 * rows, 3 * count + 3 * width + 2 * rows)
        return shape

    def _max_pool(self, node: MaxPool2d, path: str, shape: Shape) -> Shape:
        height, width = ((side + 2 * node.padding - node.kernel) // node.stride + 1 for side in shape[2:])
        result = (*shape[:2], height, width)
        given, made = prod(shape), prod(result)
        self.add(path, node, "max_pool", 0, given + made)
        # The input again, to find where each maximum was.
        self.back(path, node, "max_pool_backward", made, 2 * given + made)
        return result

    def _mean_pool(self, node: Node, path: str, shape: Shape) -> Shape:
        given, made = prod(shape), prod(shape[:2])
        self.add(path, node, "mean", given + made, given + made)
        self.back(path, node, "mean_backward", given, given + made)
        return *shape[:2], 1, 1

    # ---- the transformer ------------------------------------------------------------------------------------

    def gpt(self, node: Gpt, shape: Shape, before: int = 0, cached: bool = False) -> Shape:
        """`shape`: sequences x tokens; `before`: tokens whose keys and values are there already."""
        batch, tokens = shape
        features = (batch, tokens, node.tokens.width)
        count, places = prod(features), tokens * node.tokens.width
        self._embedding(node.tokens, "tokens", batch * tokens)
        self._embedding(node.positions, "positions", tokens)
        self.add("", node, "add", count, 2 * count + places)
        self.back("", node, "sum", count, count + places)
        self.inside = True
        for name, block in node.blocks.children():
            assert isinstance(block, Block)
            self._block(block, f"blocks.{name}", features, before, cached)
        if cached:
            features = (batch, 1, node.tokens.width)
        scores = self.visit(node.head, "head", self.visit(node.norm, "norm", features))
        if cached:
            self.add("", node, "argmax", 0, prod(scores), batch)
        return scores

    def _embedding(self, node: Embedding, path: str, rows: int) -> None:
        self.add(path, node, "embedding", 0, 2 * rows * node.width, rows)
        table = node.rows * node.width
        if path == "tokens":
            # The head shares the table: both gradients are added up.
            self.back(path, node, "add", table, 3 * table)
        self.back(path, node, "embedding_backward", rows * node.width, rows * node.width + table, rows)

    def _block(self, node: Block, path: str, shape: Shape, before: int, cached: bool) -> None:
        count = prod(shape)
        self.back(path, node, "add", count, 3 * count)
        normed = self.visit(node.before_attention, f"{path}.before_attention", shape)
        self._attention(node.attention, f"{path}.attention", normed, before, cached)
        self.add(path, node, "add", count, 3 * count)
        self.back(path, node, "add", count, 3 * count)
        normed = self.visit(node.before_perceptron, f"{path}.before_perceptron", shape)
        self.visit(node.perceptron, f"{path}.perceptron", normed)
        self.add(path, node, "add", count, 3 * count)

    def _attention(self, node: Attention, path: str, shape: Shape, before: int, cached: bool) -> None:
        batch, tokens, width = shape
        self.visit(node.project, f"{path}.project", shape)
        count, keys, head = prod(shape), before + tokens, width // node.heads
        rows = batch * node.heads * tokens
        if cached:
            self.add(path, node, "keep", 0, 4 * count)
        self.add(path, node, "attention", rows * keys * (4 * head + 5), 2 * count + 2 * batch * keys * width)
        # Of equal length in training: queries, keys, values, result and its gradient read, three gradients written.
        self.back(path, node, "attention_backward", rows * keys * (10 * head + 6) + 2 * count, 8 * count)
        self.visit(node.output, f"{path}.output", shape)

    # ---- the loss -------------------------------------------------------------------------------------------

    def loss(self, kind: str, shape: Shape) -> None:
        """Of scores or shares (rows x classes); its backward is the first of all."""
        count, rows = prod(shape), prod(shape[:-1])
        if kind == "mse":
            self._loss("MSELoss", "mse", 3 * count + 1, 2 * count + 1, 0)
            self._loss("MSELoss", "mse_backward", 3 * count, 3 * count + 1, 0, back=True)
            return
        name = "NextTokenLoss" if len(shape) == 3 else "CrossEntropyLoss"
        self._loss(name, "log_softmax", 4 * count + rows, 2 * count, 0)
        self._loss(name, "negative_log_likelihood", rows + 1, rows + 2, rows)
        self._loss(name, "log_softmax_backward", 4 * count, 3 * count, 0, back=True)
        self._loss(name, "negative_log_likelihood_backward", rows + 1, count + 2, rows, back=True)

    def _loss(self, name: str, operation: str, flops: int, elements: int, indices: int, back: bool = False) -> None:
        cost = self._cost(name, name, operation, flops, elements, indices)
        (self.backward if back else self.forward).append(replace(cost, phase="loss"))
