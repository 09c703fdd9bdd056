"""A network in TensorFlow that learns batch by batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from sonda.frameworks.tensorflow.drive.steps import wait
from sonda.workloads.description import Description
from sonda.workloads.in_tensorflow.layers import TensorflowLayers
from sonda.workloads.in_tensorflow.network import NetworkInTensorflow
from sonda.workloads.networks.examples import images_channels_last


def evaluate(network: NetworkInTensorflow, inputs: Any, targets: Any) -> tuple[Any, Any]:
    """The mean loss and the number of right answers; weights and statistics do not change."""
    layers = TensorflowLayers(network.weights, False, network.narrow, network.compiled)
    scores = layers.apply(network.structure, "", inputs)
    classes = tf.argmax(targets, axis=-1) if network.squared else targets
    right = tf.reduce_sum(tf.cast(tf.argmax(scores, axis=-1) == tf.cast(classes, tf.int64), tf.int64))
    return network.loss(scores, targets), right


class TensorflowLearner:
    """Learns batch by batch. TensorFlow traces a graph for every batch size; a step ends when a GPU has computed it."""

    def __init__(self, description: Description, seed: int, precision: str, compiled: bool) -> None:
        self.network = NetworkInTensorflow(description, True, seed, precision, compiled)
        self._learn = self.network.function()
        self._judge = tf.function(lambda *batch: evaluate(self.network, *batch), jit_compile=compiled)

    def _to_tensors(self, inputs: np.ndarray, targets: np.ndarray) -> tuple[Any, Any]:
        return tf.cast(tf.constant(images_channels_last(inputs)), self.network.kind), tf.constant(targets)

    def ready(self, inputs: np.ndarray, targets: np.ndarray, train: bool) -> None:
        """Trace, optimise and run once. The weights do not change."""
        batch = self._to_tensors(inputs, targets)
        if not train:
            self._judge(*batch)
            return
        initial = {name: tf.identity(weight) for name, weight in self.network.weights.items()}
        self._learn(*batch)
        for name, values in initial.items():
            self.network.weights[name].assign(values)

    def learn(self, inputs: np.ndarray, targets: np.ndarray) -> Any:
        return wait(self._learn(*self._to_tensors(inputs, targets)))

    def judge(self, inputs: np.ndarray, targets: np.ndarray) -> tuple[Any, Any]:
        loss, right = self._judge(*self._to_tensors(inputs, targets))
        return wait(loss), right

    def arrays(self) -> dict[str, np.ndarray]:
        """The weights by PyTorch's names and in its layout."""
        return self.network.arrays()
