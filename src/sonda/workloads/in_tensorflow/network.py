"""A built-in network in TensorFlow: a step as a program would write it, and its arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from sonda.frameworks.harness.settings import weights_type
from sonda.workloads.description import Description
from sonda.workloads.in_tensorflow.layers import TensorflowLayers, cross_entropy, mean_squared_error
from sonda.workloads.networks.cost import LayerCost, network_costs
from sonda.workloads.networks.examples import images_channels_last, synthetic_examples
from sonda.workloads.networks.layers import classes_by_path, walk_layers
from sonda.workloads.networks.network import require_network
from sonda.workloads.networks.weights import channels_first, channels_last, initial_weights

LOSS_SCALE = 1024.0
"""Under mixed float16 the loss is multiplied by this, so that small gradients do not become 0."""


class NetworkInTensorflow:
    """A network whose weights are variables. `infer` and `learn` run eagerly; `function` makes a `tf.function`."""

    tokens = 0

    def __init__(self, description: Description, train: bool, seed: int, precision: str, compiled: bool) -> None:
        """`compiled`: whether XLA compiles graphs. Call it inside `tf.device` of the device that it is to run on."""
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
        buffers = {f"{path}.{name}" for path, layer in walk_layers(self.structure) for name in layer.buffers()}
        replica_options = per_replica_options()
        self.weights = {
            name: tf.Variable(
                tf.cast(channels_last(values), self.kind), trainable=name not in buffers,
                **(replica_options if name in buffers else {}),
            )
            for name, values in initial_weights(network, seed).items()
        }  # fmt: skip
        self.trained = {name: weight for name, weight in self.weights.items() if weight.trainable}
        self.layers = TensorflowLayers(self.weights, train, self.narrow, compiled)
        inputs, self.targets = synthetic_examples(network, seed)
        self.inputs = images_channels_last(inputs)
        self.squared = network.loss == "mse"

    @property
    def costs(self) -> tuple[LayerCost, ...]:
        """Every operation of a step by formula."""
        return network_costs(self.description, self.train, self.kind.size)

    @property
    def classes(self) -> dict[str, str]:
        """Classes of all layers by path, that of the network ('') among them."""
        return classes_by_path(self.structure)

    @property
    def first(self) -> Any:
        """The input of an inference step."""
        return tf.cast(tf.constant(self.inputs[: self.samples]), self.kind)

    def infer(self, inputs: Any) -> Any:
        """The network's output."""
        return self.layers.apply(self.structure, "", inputs)

    def infer_scoped(self, inputs: Any) -> Any:
        """The network's output, computed in the name scope of the phase."""
        with tf.name_scope("forward"):
            return self.infer(inputs)

    def loss(self, scores: Any, targets: Any) -> Any:
        return (mean_squared_error if self.squared else cross_entropy)(scores, targets)

    def learn(self, inputs: Any, targets: Any) -> Any:
        """Run one step of training; returns the loss."""
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
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.assign_sub(tf.constant(self.rate / self.scale, gradient.dtype) * gradient)

    def function(self) -> Any:
        """A step as a `tf.function` that was not traced yet: `learn` in training, else `infer_scoped`."""
        return tf.function(self.learn if self.train else self.infer_scoped, jit_compile=self.compiled)

    def arrays(self) -> dict[str, np.ndarray]:
        """The weights by PyTorch's names and in its layout, copied."""
        return {name: channels_first(weight.read_value().numpy()) for name, weight in self.weights.items()}


def per_replica_options() -> dict[str, Any]:
    """Options of a variable that every replica of a strategy has for itself, such as the statistics of batch norms.

    Code outside of a replica reads the mean of all. Parameter servers have one variable for all workers: no options.
    """
    strategy = tf.distribute.get_strategy()
    if not tf.distribute.has_strategy() or isinstance(strategy, tf.distribute.ParameterServerStrategy):
        return {}
    return {"synchronization": tf.VariableSynchronization.ON_READ, "aggregation": tf.VariableAggregation.MEAN}


def build(
    description: Description, train: bool, seed: int, precision: str = "float32", compiled: bool = False
) -> NetworkInTensorflow:
    """Make it ready. Raises SondaError where TensorFlow lacks the network, or it cannot be trained on so few values."""
    return NetworkInTensorflow(description, train, seed, precision, compiled)
