"""Networks of dense layers in PyTensor: the weights, data and mathematics that every framework has.

A whole step is one function, as a program would write it: PyTensor derives the gradients, and SGD is the updates of the
function. The inside of a compiled function cannot be timed. Therefore the same step also exists as many functions, one
for every layer and direction.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.tensor.special import log_softmax, softmax

from sonda.record.errors import SondaError
from sonda.workloads.description import Description
from sonda.workloads.networks.cost import network_costs
from sonda.workloads.networks.examples import batch_numbers, synthetic_examples
from sonda.workloads.networks.layers import (
    Flatten,
    Layer,
    Linear,
    ReLU,
    Sequential,
    Sigmoid,
    Softmax,
    Tanh,
    join_path,
)
from sonda.workloads.networks.network import require_network
from sonda.workloads.networks.weights import initial_weights

Batch = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class LayerFunctions:
    """The functions of one layer: `forward(x)` gives y, `backward(x, dy)` the gradients of x and of its weights.

    The backward of the first layer gives no gradient of x, which is not needed.
    """

    path: str
    class_name: str
    forward: Any
    backward: Any
    weights: tuple[str, ...]


@dataclass(frozen=True)
class StepFunctions:
    """A step as many functions: those of layers, `loss(output, targets)` and `loss_gradient` of the same arguments.

    `update(*gradients)` takes the gradients of all weights.
    """

    layers: tuple[LayerFunctions, ...]
    loss: Any = None
    loss_gradient: Any = None
    update: Any = None


class NetworkInPyTensor:
    """A network with its examples in memory. Every method that gives a function compiles it anew."""

    tokens = 0

    def __init__(self, description: Description, train: bool, seed: int, precision: str) -> None:
        self.phase_tokens: dict[str, int] = {}
        network = require_network(description)
        self.classes = network.classes
        self.learning_rate = network.learning_rate
        self.structure = network.structure()
        self.root = self.structure.class_name
        self.samples = network.batch
        self.train = train
        self.dtype = precision
        self.costs = network_costs(network, train, np.dtype(precision).itemsize)
        self.weights = {
            name: pytensor.shared(values.astype(precision), name)
            for name, values in initial_weights(network, seed).items()
        }
        inputs, targets = synthetic_examples(network, seed)
        self.inputs = inputs.astype(precision, copy=False)
        self.targets = targets if targets.dtype.kind == "i" else targets.astype(precision, copy=False)
        self._seed = seed

    def first(self) -> np.ndarray:
        """The input of an inference step."""
        return self.inputs[: self.samples]

    def batches(self) -> Iterator[Batch]:
        """Endless training batches from the first one, in the order of every framework."""
        for numbers in batch_numbers(len(self.targets), self.samples, self._seed):
            yield self.inputs[numbers], self.targets[numbers]

    # ---- the step as one function -----------------------------------------------------------------------------

    def inference(self) -> Any:
        """A function of a batch that gives the outputs."""
        x = pt.matrix("x", dtype=self.dtype)
        return pytensor.function([x], self._output(x), name="inference")

    def training(self) -> Any:
        """A function of a batch and its targets that gives the loss and updates the weights."""
        x, target = pt.matrix("x", dtype=self.dtype), self._target()
        loss = self._loss(self._output(x), target)
        gradients = pytensor.grad(loss, list(self.weights.values()))
        return pytensor.function([x, target], loss, updates=self._sgd_updates(gradients), name="training")

    def evaluation(self) -> Any:
        """A function of a batch and its targets that gives the loss and the number of right answers."""
        x, target = pt.matrix("x", dtype=self.dtype), self._target()
        output = self._output(x)
        classes = target if target.ndim == 1 else pt.argmax(target, axis=1)
        right = pt.sum(pt.eq(pt.argmax(output, axis=1), classes))
        return pytensor.function([x, target], [self._loss(output, target), right], name="evaluation")

    def _output(self, x: Any) -> Any:
        for path, layer in _leaves(self.structure):
            x = self._apply(layer, path, x)
        return x

    # ---- the step as many functions ---------------------------------------------------------------------------

    def step_functions(self) -> StepFunctions:
        """The same step as many functions; those of the backward only in training."""
        leaves = enumerate(_leaves(self.structure))
        layers = tuple(self._layer_functions(path, layer, first=not number) for number, (path, layer) in leaves)
        if not self.train:
            return StepFunctions(layers)
        output, target = pt.matrix("output", dtype=self.dtype), self._target()
        loss = self._loss(output, target)
        gradients = [weight.type(f"d_{name}") for name, weight in self.weights.items()]
        return StepFunctions(
            layers,
            pytensor.function([output, target], loss, name="loss"),
            pytensor.function([output, target], pytensor.grad(loss, output), name="loss backward"),
            pytensor.function(gradients, None, updates=self._sgd_updates(gradients), name="optimizer"),
        )

    def _layer_functions(self, path: str, layer: Layer, first: bool) -> LayerFunctions:
        x = pt.matrix("x", dtype=self.dtype)
        y = self._apply(layer, path, x)
        names = tuple(f"{path}.{name}" for name in layer.parameters())
        forward = pytensor.function([x], y, name=f"{path} forward")
        wanted = [*([] if first else [x]), *(self.weights[name] for name in names)]
        backward = None
        if self.train and wanted:
            dy = pt.matrix("dy", dtype=self.dtype)
            gradients = pytensor.grad(None, wanted, known_grads={y: dy})
            backward = pytensor.function([x, dy], gradients, name=f"{path} backward", on_unused_input="ignore")
        return LayerFunctions(path, layer.class_name, forward, backward, names)

    # ---- mathematics ------------------------------------------------------------------------------------------

    def _apply(self, layer: Layer, path: str, x: Any) -> Any:
        if isinstance(layer, Linear):
            y = pt.dot(x, self.weights[f"{path}.weight"].T)
            return y + self.weights[f"{path}.bias"] if layer.bias else y
        if isinstance(layer, Sigmoid):
            return pt.sigmoid(x)
        if isinstance(layer, Tanh):
            return pt.tanh(x)
        if isinstance(layer, ReLU):
            return pt.maximum(x, np.zeros((), dtype=self.dtype))
        if isinstance(layer, Softmax):
            return softmax(x, axis=1)
        if isinstance(layer, Flatten):
            return x
        raise SondaError(f"{layer.class_name} is not there in PyTensor", "use mlp, or --framework torch")

    def _target(self) -> Any:
        return pt.lvector("target") if self.targets.ndim == 1 else pt.matrix("target", dtype=self.dtype)

    def _loss(self, output: Any, target: Any) -> Any:
        if self.targets.ndim > 1:
            return pt.mean(pt.sqr(output - target))
        # Not by indexing: Numba takes a minute to compile indexing with its gradient.
        chosen = pt.eq(target[:, None], pt.arange(self.classes))
        return -pt.sum(log_softmax(output, axis=1) * pt.cast(chosen, self.dtype)) / pt.cast(target.shape[0], self.dtype)

    def _sgd_updates(self, gradients: Any) -> list[tuple[Any, Any]]:
        """Pairs of a weight and its value after an SGD step."""
        rate = np.asarray(self.learning_rate, dtype=self.dtype)
        return [
            (weight, weight - rate * gradient)
            for weight, gradient in zip(self.weights.values(), gradients, strict=True)
        ]


def _leaves(layer: Layer, path: str = "") -> Iterator[tuple[str, Layer]]:
    """Layers in the order in which they run. Raises SondaError for a network that is no plain sequence."""
    if not isinstance(layer, Sequential):
        if layer.children():
            raise SondaError(f"{layer.class_name} is not there in PyTensor", "use mlp, or --framework torch")
        yield path, layer
        return
    for name, child in layer.children():
        yield from _leaves(child, join_path(path, name))


def build(description: Description, train: bool, seed: int, precision: str) -> NetworkInPyTensor:
    """Make it ready, in float32 or float64. Raises SondaError for a layer that is not implemented."""
    return NetworkInPyTensor(description, train, seed, precision)
