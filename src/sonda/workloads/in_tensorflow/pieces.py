"""A step in pieces: layer by layer, forward and backward, each run by itself and announced.

What a graph runs as one is run here operation by operation, with a tape for every layer: its gradient is asked for when
backward reaches it. The arithmetic is that of the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

import tensorflow as tf

from sonda.workloads.in_tensorflow.network import NetworkInTensorflow
from sonda.workloads.networks.layers import Node, Residual, Sequential, join

Backward = Callable[[Any], Any]
"""From the gradient of a node's output to that of its input."""


class Announcer(Protocol):
    """Who is told of phases and layers."""

    def phase(self, name: str) -> AbstractContextManager[None]: ...

    def layer(self, path: str, class_name: str = "", direction: str = "forward") -> AbstractContextManager[None]: ...


class Pieces:
    """Runs the steps of a network in pieces."""

    def __init__(self, network: NetworkInTensorflow, announcer: Announcer) -> None:
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

    def _forward(self, node: Node, path: str, values: Any) -> tuple[Any, Backward]:
        """What a node makes of its input, and its backward."""
        if isinstance(node, Sequential):
            if not path:
                return self._chain(node, path, values)
            with self.announcer.layer(path, node.class_name):
                return self._chain(node, path, values)
        with self.announcer.layer(path, node.class_name):
            if isinstance(node, Residual):
                return self._residual(node, path, values)
            return self._layer(node, path, values)

    def _chain(self, node: Sequential, path: str, values: Any) -> tuple[Any, Backward]:
        walked: list[Backward] = []
        for name, child in node.children():
            values, back = self._forward(child, join(path, name), values)
            walked.append(back)

        def backward(slope: Any) -> Any:
            for back in reversed(walked):
                slope = back(slope)
            return slope

        return values, backward

    def _residual(self, node: Residual, path: str, values: Any) -> tuple[Any, Backward]:
        body, through_body = self._forward(node.body, f"{path}.body", values)
        shortcut, through_shortcut = self._forward(node.shortcut, f"{path}.shortcut", values)
        result, through_activation = self._forward(node.activation, f"{path}.activation", body + shortcut)

        def backward(slope: Any) -> Any:
            slope = through_activation(slope)
            return through_body(slope) + through_shortcut(slope)

        return result, backward

    def _layer(self, node: Node, path: str, values: Any) -> tuple[Any, Backward]:
        network = self.network
        if not network.train:
            return network.layers.layer(node, path, values), lambda slope: slope
        names = [f"{path}.{name}" for name in node.parameters()]
        weights = [network.trained[name] for name in names]
        with tf.GradientTape() as tape:
            tape.watch(values)
            result = network.layers.layer(node, path, values)

        def backward(slope: Any) -> Any:
            with self.announcer.layer(path, node.class_name, "backward"):
                found = tape.gradient(result, [values, *weights], output_gradients=slope)
            self.gradients.update(zip(names, found[1:], strict=True))
            return found[0]

        return result, backward
