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
    Layer,
    LayerNorm,
    Linear,
    MaxPool2d,
    ReLU,
    Residual,
    Sequential,
    Shape,
    Sigmoid,
    Softmax,
    Tanh,
    join_path,
    walk_layers,
)
from sonda.workloads.networks.network import Network
from sonda.workloads.networks.transformer import Transformer

INDEX_BYTES = 8
"""Bytes of the number of a class or of a token."""
ACTIVATIONS: dict[type[Layer], tuple[str, int, int]] = {
    ReLU: ("relu", 0, 0),
    Sigmoid: ("sigmoid", 4, 3),
    Tanh: ("tanh", 1, 3),
    GELU: ("gelu", 5, 11),
    Softmax: ("softmax", 4, 4),
}
"""Name, FLOPs of an element forward and backward."""
ADAMW_FLOPS = 14
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
        return _generation_costs(network, width)
    tally = _Tally(width, train)
    output = tally.visit(structure, "", network.input_shape())
    if not train:
        return tuple(tally.forward)
    tally.loss(network.loss, output)
    backward = [replace(cost, phase="backward") for cost in reversed(tally.backward)]
    return (*tally.forward, *backward, *_optimizer_costs(structure, network.optimizer, width))


def _generation_costs(network: Transformer, width: int) -> tuple[LayerCost, ...]:
    """Costs of the whole prompt at once, then token by token, each with the keys and values of all before it."""
    structure = network.structure()
    costs: list[LayerCost] = []
    for number in range(network.generate + 1):
        tally = _Tally(width, False, "decode" if number else "prefill")
        tokens, before = (1, network.length + number - 1) if number else (network.length, 0)
        tally.gpt(structure, (network.batch, tokens), before, cached=True)
        costs += tally.forward
    return tuple(costs)


def _optimizer_costs(network: Layer, optimizer: str, width: int) -> list[LayerCost]:
    """Costs of the update. SGD reads weight and gradient, writes the weight; AdamW also reads, writes two moments."""
    flops, moved = (2, 3) if optimizer == "sgd" else (ADAMW_FLOPS, 7)
    costs = []
    for path, layer in walk_layers(network):
        count = sum(prod(shape) for shape in layer.parameters().values())
        if count:
            cost = LayerCost("optimizer", path, layer.class_name, optimizer, flops * count, moved * width * count)
            costs.append(cost)
    return costs


class _Tally:
    """Adds up costs on a walk through a network with the shapes of its inputs; `backward` has the forward's order."""

    def __init__(self, width: int, train: bool, phase: str = "forward") -> None:
        self.width = width
        self.train = train
        self.phase = phase
        self.forward: list[LayerCost] = []
        self.backward: list[LayerCost] = []
        self.needs_input_gradient = False
        """Whether a layer with weights comes before this one, so that its input needs a gradient."""

    def add_forward(self, path: str, layer: Layer, operation: str, flops: int, elements: int, indices: int = 0) -> None:
        self.forward.append(self._cost(path, layer.class_name, operation, flops, elements, indices))

    def add_backward(
        self, path: str, layer: Layer, operation: str, flops: int, elements: int, indices: int = 0
    ) -> None:
        if self.train:
            self.backward.append(self._cost(path, layer.class_name, operation, flops, elements, indices))

    def _cost(self, path: str, name: str, operation: str, flops: int, elements: int, indices: int) -> LayerCost:
        return LayerCost(self.phase, path, name, operation, flops, self.width * elements + INDEX_BYTES * indices)

    def visit(self, layer: Layer, path: str, shape: Shape) -> Shape:
        """Add the costs of a layer; returns the shape of its output."""
        if isinstance(layer, Sequential):
            for name, child in layer.children():
                shape = self.visit(child, join_path(path, name), shape)
            return shape
        if isinstance(layer, Residual):
            return self._residual(layer, path, shape)
        if isinstance(layer, Gpt):
            return self.gpt(layer, shape)
        if isinstance(layer, Linear):
            return self._linear(layer, path, shape)
        if isinstance(layer, Conv2d):
            return self._convolution(layer, path, shape)
        if isinstance(layer, BatchNorm2d):
            return self._batch_norm(layer, path, shape)
        if isinstance(layer, LayerNorm):
            return self._layer_norm(layer, path, shape)
        if isinstance(layer, MaxPool2d):
            return self._max_pool(layer, path, shape)
        if isinstance(layer, AdaptiveAvgPool2d):
            return self._mean_pool(layer, path, shape)
        if isinstance(layer, Flatten):
            return shape[0], prod(shape[1:])
        name, forward, backward = ACTIVATIONS[type(layer)]
        count = prod(shape)
        self.add_forward(path, layer, name, forward * count, 2 * count)
        self.add_backward(path, layer, f"{name}_backward", backward * count, 3 * count)
        return shape

    def _residual(self, layer: Residual, path: str, shape: Shape) -> Shape:
        # What flows back through body and shortcut is added up where both began.
        self.add_backward(path, layer, "add", prod(shape), 3 * prod(shape))
        result = self.visit(layer.body, f"{path}.body", shape)
        self.visit(layer.shortcut, f"{path}.shortcut", shape)
        self.add_forward(path, layer, "add", prod(result), 3 * prod(result))
        return self.visit(layer.activation, f"{path}.activation", result)

    def _linear(self, layer: Linear, path: str, shape: Shape) -> Shape:
        rows = prod(shape[:-1])
        weights, input_size, output_size = layer.inputs * layer.outputs, rows * layer.inputs, rows * layer.outputs
        product, bias = 2 * rows * weights, layer.bias * output_size
        self.add_forward(
            path, layer, "linear", product + bias, input_size + weights + output_size + layer.bias * layer.outputs
        )
        if layer.bias:
            self.add_backward(path, layer, "bias_gradient", output_size, output_size + layer.outputs)
        self.add_backward(path, layer, "weight_gradient", product, output_size + input_size + weights)
        if self.needs_input_gradient:
            self.add_backward(path, layer, "input_gradient", product, output_size + weights + input_size)
        self.needs_input_gradient = True
        return *shape[:-1], layer.outputs

    def _convolution(self, layer: Conv2d, path: str, shape: Shape) -> Shape:
        batch, _, *sides = shape
        height, width = ((side + 2 * layer.padding - layer.kernel) // layer.stride + 1 for side in sides)
        result = (batch, layer.outputs, height, width)
        weights = layer.outputs * layer.inputs * layer.kernel**2
        input_size, output_size, bias = prod(shape), prod(result), layer.bias * layer.outputs
        product = 2 * batch * height * width * weights
        self.add_forward(
            path, layer, "convolution", product + layer.bias * output_size, input_size + weights + bias + output_size
        )
        # One operation gives all gradients. It reads the image for the weight's, the weight for the image's.
        flops = product * (1 + self.needs_input_gradient) + layer.bias * output_size
        moved = output_size + input_size + weights + bias + self.needs_input_gradient * (weights + input_size)
        self.add_backward(path, layer, "convolution_backward", flops, moved)
        self.needs_input_gradient = True
        return result

    def _batch_norm(self, layer: BatchNorm2d, path: str, shape: Shape) -> Shape:
        count, channels = prod(shape), layer.channels
        if self.train:
            # Weight, bias, running values read; running values and the batch's own written.
            self.add_forward(path, layer, "batch_norm", 6 * count + 15 * channels, 2 * count + 8 * channels)
            self.add_backward(path, layer, "batch_norm_backward", 9 * count + 6 * channels, 3 * count + 5 * channels)
        else:
            self.add_forward(path, layer, "batch_norm", 2 * count + 6 * channels, 2 * count + 4 * channels)
        return shape

    def _layer_norm(self, layer: LayerNorm, path: str, shape: Shape) -> Shape:
        count, rows, width = prod(shape), prod(shape[:-1]), layer.width
        self.add_forward(path, layer, "layer_norm", 8 * count + 5 * rows, 2 * count + 2 * width + 2 * rows * self.train)
        self.add_backward(path, layer, "layer_norm_backward", 13 * count + 2 * rows, 3 * count + 3 * width + 2 * rows)
        return shape

    def _max_pool(self, layer: MaxPool2d, path: str, shape: Shape) -> Shape:
        height, width = ((side + 2 * layer.padding - layer.kernel) // layer.stride + 1 for side in shape[2:])
        result = (*shape[:2], height, width)
        input_size, output_size = prod(shape), prod(result)
        self.add_forward(path, layer, "max_pool", 0, input_size + output_size)
        # The input again, to find where each maximum was.
        self.add_backward(path, layer, "max_pool_backward", output_size, 2 * input_size + output_size)
        return result

    def _mean_pool(self, layer: Layer, path: str, shape: Shape) -> Shape:
        input_size, output_size = prod(shape), prod(shape[:2])
        self.add_forward(path, layer, "mean", input_size + output_size, input_size + output_size)
        self.add_backward(path, layer, "mean_backward", input_size, input_size + output_size)
        return *shape[:2], 1, 1

    # ---- the transformer ------------------------------------------------------------------------------------

    def gpt(self, layer: Gpt, shape: Shape, before: int = 0, cached: bool = False) -> Shape:
        """Add the costs of a GPT; returns the shape of its scores.

        `shape` is sequences x tokens, `before` the number of tokens whose keys and values are cached already.
        """
        batch, tokens = shape
        features = (batch, tokens, layer.tokens.width)
        count, position_elements = prod(features), tokens * layer.tokens.width
        self._embedding(layer.tokens, "tokens", batch * tokens)
        self._embedding(layer.positions, "positions", tokens)
        self.add_forward("", layer, "add", count, 2 * count + position_elements)
        self.add_backward("", layer, "sum", count, count + position_elements)
        self.needs_input_gradient = True
        for name, block in layer.blocks.children():
            assert isinstance(block, Block)
            self._block(block, f"blocks.{name}", features, before, cached)
        if cached:
            features = (batch, 1, layer.tokens.width)
        scores = self.visit(layer.head, "head", self.visit(layer.norm, "norm", features))
        if cached:
            self.add_forward("", layer, "argmax", 0, prod(scores), batch)
        return scores

    def _embedding(self, layer: Embedding, path: str, rows: int) -> None:
        self.add_forward(path, layer, "embedding", 0, 2 * rows * layer.width, rows)
        table = layer.rows * layer.width
        if path == "tokens":
            # The head shares the table: both gradients are added up.
            self.add_backward(path, layer, "add", table, 3 * table)
        self.add_backward(path, layer, "embedding_backward", rows * layer.width, rows * layer.width + table, rows)

    def _block(self, layer: Block, path: str, shape: Shape, before: int, cached: bool) -> None:
        count = prod(shape)
        self.add_backward(path, layer, "add", count, 3 * count)
        normed = self.visit(layer.before_attention, f"{path}.before_attention", shape)
        self._attention(layer.attention, f"{path}.attention", normed, before, cached)
        self.add_forward(path, layer, "add", count, 3 * count)
        self.add_backward(path, layer, "add", count, 3 * count)
        normed = self.visit(layer.before_perceptron, f"{path}.before_perceptron", shape)
        self.visit(layer.perceptron, f"{path}.perceptron", normed)
        self.add_forward(path, layer, "add", count, 3 * count)

    def _attention(self, layer: Attention, path: str, shape: Shape, before: int, cached: bool) -> None:
        batch, tokens, width = shape
        self.visit(layer.project, f"{path}.project", shape)
        count, keys, head = prod(shape), before + tokens, width // layer.heads
        rows = batch * layer.heads * tokens
        if cached:
            self.add_forward(path, layer, "keep", 0, 4 * count)
        self.add_forward(path, layer, "attention", rows * keys * (4 * head + 5), 2 * count + 2 * batch * keys * width)
        # Of equal length in training: queries, keys, values, result and its gradient read, three gradients written.
        self.add_backward(path, layer, "attention_backward", rows * keys * (10 * head + 6) + 2 * count, 8 * count)
        self.visit(layer.output, f"{path}.output", shape)

    # ---- the loss -------------------------------------------------------------------------------------------

    def loss(self, kind: str, shape: Shape) -> None:
        """Add the costs of the loss of scores or shares (rows x classes), forward and backward."""
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
