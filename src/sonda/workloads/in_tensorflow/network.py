"""A built-in network made ready in TensorFlow: the functions that anybody would write, and their arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from sonda.frameworks.harness.settings import weights_type
from sonda.workloads.description import Description
from sonda.workloads.in_tensorflow.layers import Layers, cross_entropy, mean_squared_error
from sonda.workloads.networks.cost import LayerCost, network_costs
from sonda.workloads.networks.examples import arranged, examples
from sonda.workloads.networks.layers import classes_by_path, walk
from sonda.workloads.networks.network import require_network
from sonda.workloads.networks.weights import channels_first, channels_last, initial_weights

LOSS_SCALE = 1024.0
"""Under mixed float16 the loss is multiplied by this, so that small gradients are no zeros."""


class NetworkInTensorflow:
    """Weights are variables. `infer` and `learn` run operation by operation; `function` makes a graph of them."""

    tokens = 0

    def __init__(self, description: Description, train: bool, seed: int, precision: str, compiled: bool) -> None:
        """`compiled`: graphs are compiled by XLA. Made inside the device that it is to run on."""
        network = require_network(description)
        if train:
            network.check_training()
        self.description = network
        self.train = train
        self.compiled = compiled
        self.samples = network.batch
        self.rate = network.learning_rate
        self.phase_tokens: dict[str, int] = {}
        self.dtype = weights_type(precision)
        self.kind = getattr(tf, self.dtype)
        self.narrow = getattr(tf, precision.removeprefix("mixed_")) if precision.startswith("mixed_") else None
        self.scale = LOSS_SCALE if precision == "mixed_float16" else 1.0
        self.structure = network.structure()
        self.root = self.structure.class_name
        changing = {f"{path}.{name}" for path, node in walk(self.structure) for name in node.buffers()}
        own = per_replica()
        self.weights = {
            name: tf.Variable(
                tf.cast(channels_last(values), self.kind), trainable=name not in changing,
                **(own if name in changing else {}),
            )
            for name, values in initial_weights(network, seed).items()
        }  # fmt: skip
        self.trained = {name: weight for name, weight in self.weights.items() if weight.trainable}
        self.layers = Layers(self.weights, train, self.narrow, compiled)
        inputs, self.targets = examples(network, seed)
        self.inputs = arranged(inputs)
        self.squared = network.loss == "mse"

    @property
    def costs(self) -> tuple[LayerCost, ...]:
        """Every operation of a step by formula."""
        return network_costs(self.description, self.train, self.kind.size)

    @property
    def classes(self) -> dict[str, str]:
        """Of all layers by path, '' among them."""
        return classes_by_path(self.structure)

    @property
    def first(self) -> Any:
        """What an inference step is given."""
        return tf.cast(tf.constant(self.inputs[: self.samples]), self.kind)

    def infer(self, inputs: Any) -> Any:
        """The network's output."""
        return self.layers.network(self.structure, "", inputs)

    def inferred(self, inputs: Any) -> Any:
        """The same under the scope of its phase."""
        with tf.name_scope("forward"):
            return self.infer(inputs)

    def loss(self, scores: Any, targets: Any) -> Any:
        return (mean_squared_error if self.squared else cross_entropy)(scores, targets)

    def learn(self, inputs: Any, targets: Any) -> Any:
        """One step of training; the loss."""
        weights = list(self.trained.values())
        with tf.GradientTape() as tape:
            with tf.name_scope("forward"):
                scores = self.infer(inputs)
            with tf.name_scope("loss"):
                loss = self.loss(scores, targets)
                scaled = loss * self.scale
        gradients = tape.gradient(scaled, weights)
        with tf.name_scope("optimizer"):
            self.update(weights, gradients)
        return loss

    def update(self, weights: list[Any], gradients: list[Any]) -> None:
        """SGD: weight - rate x gradient."""
        for weight, slope in zip(weights, gradients, strict=True):
            weight.assign_sub(tf.constant(self.rate / self.scale, slope.dtype) * slope)

    def function(self) -> Any:
        """A step as a graph that was not traced yet: `learn` in training, else `inferred`."""
        return tf.function(self.learn if self.train else self.inferred, jit_compile=self.compiled)

    def arrays(self) -> dict[str, np.ndarray]:
        """The weights by PyTorch's names and in its layout, copied."""
        return {name: channels_first(weight.read_value().numpy()) for name, weight in self.weights.items()}


def per_replica() -> dict[str, Any]:
    """How a variable is made that every replica of a strategy has for itself, as the statistics of batch norms.

    Whoever reads it from outside gets the mean. Parameter servers have one of each for all workers.
    """
    strategy = tf.distribute.get_strategy()
    if not tf.distribute.has_strategy() or isinstance(strategy, tf.distribute.ParameterServerStrategy):
        return {}
    return {"synchronization": tf.VariableSynchronization.ON_READ, "aggregation": tf.VariableAggregation.MEAN}


def build(
    description: Description, train: bool, seed: int, precision: str = "float32", compiled: bool = False
) -> NetworkInTensorflow:
    """Raises SondaError where the network is not there, or cannot be trained on so few values."""
    return NetworkInTensorflow(description, train, seed, precision, compiled)
