"""Steps layer by layer, forward and backward: every layer runs by itself and is announced.

Layers run operation by operation without a graph. Every layer has a tape of its own, from which its gradients are
computed when the backward reaches it. The arithmetic is that of the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from sonda.frameworks.tensorflow.drive.steps import LayerAnnouncer
from sonda.workloads.in_tensorflow.network import NetworkInTensorflow
from sonda.workloads.networks.layers import Layer, Residual, Sequential, join_path

Backward = Callable[[Any], Any]
"""Takes the gradient of a layer's output, and gives that of its input."""


class LayerwiseNetwork:
    """Runs the steps of a network layer by layer."""

    def __init__(self, network: NetworkInTensorflow, announcer: LayerAnnouncer) -> None:
        self.network = network
        self.announcer = announcer
        self.gradients: dict[str, Any] = {}

    def infer(self, inputs: Any) -> Any:
        """One step of inference; the output."""
        with self.announcer.phase("forward"), self.announcer.layer(""):
            return self._forward(self.network.structure, "", inputs)[0]

    def learn(self, inputs: Any, targets: Any) -> Any:
        """One step of training; the loss."""
        network, announcer = self.network, self.announcer
        with announcer.phase("forward"), announcer.layer(""):
            scores, backward = self._forward(network.structure, "", inputs)
        with announcer.phase("loss"), tf.GradientTape() as tape:
            tape.watch(scores)
            loss = network.loss(scores, targets)
            scaled = loss * network.scale
        with announcer.phase("backward"), announcer.layer("", direction="backward"):
            backward(tape.gradient(scaled, scores))
        with announcer.phase("optimizer"):
            network.update(list(network.trained.values()), [self.gradients[name] for name in network.trained])
        self.gradients.clear()
        return loss

    def _forward(self, layer: Layer, path: str, values: Any) -> tuple[Any, Backward]:
        """The output of a layer, and its backward."""
        if isinstance(layer, Sequential):
            if not path:
                return self._chain(layer, path, values)
            with self.announcer.layer(path, layer.class_name):
                return self._chain(layer, path, values)
        with self.announcer.layer(path, layer.class_name):
            if isinstance(layer, Residual):
                return self._residual(layer, path, values)
            return self._layer(layer, path, values)

    def _chain(self, layer: Sequential, path: str, values: Any) -> tuple[Any, Backward]:
        backwards: list[Backward] = []
        for name, child in layer.children():
            values, child_backward = self._forward(child, join_path(path, name), values)
            backwards.append(child_backward)

        def backward(gradient: Any) -> Any:
            for child_backward in reversed(backwards):
                gradient = child_backward(gradient)
            return gradient

        return values, backward

    def _residual(self, layer: Residual, path: str, values: Any) -> tuple[Any, Backward]:
        body, through_body = self._forward(layer.body, f"{path}.body", values)
        shortcut, through_shortcut = self._forward(layer.shortcut, f"{path}.shortcut", values)
        result, through_activation = self._forward(layer.activation, f"{path}.activation", body + shortcut)

        def backward(gradient: Any) -> Any:
            gradient = through_activation(gradient)
            return through_body(gradient) + through_shortcut(gradient)

        return result, backward

    def _layer(self, layer: Layer, path: str, values: Any) -> tuple[Any, Backward]:
        network = self.network
        if not network.train:
            return network.layers.apply_layer(layer, path, values), lambda gradient: gradient
        names = [f"{path}.{name}" for name in layer.parameters()]
        weights = [network.trained[name] for name in names]
        with tf.GradientTape() as tape:
            tape.watch(values)
            result = network.layers.apply_layer(layer, path, values)

        def backward(gradient: Any) -> Any:
            with self.announcer.layer(path, layer.class_name, "backward"):
                gradients = tape.gradient(result, [values, *weights], output_gradients=gradient)
            self.gradients.update(zip(names, gradients[1:], strict=True))
            return gradients[0]

        return result, backward
