"""A network in JAX that learns batch by batch."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sonda.workloads.description import Description
from sonda.workloads.in_jax.layers import Arrays, Forward, cross_entropy, mean_squared_error
from sonda.workloads.in_jax.network import NetworkInJax
from sonda.workloads.networks.examples import images_channels_last
from sonda.workloads.networks.weights import channels_first


class JaxLearner:
    """Learns batch by batch. Functions are compiled for every batch size.

    Each step moves its batch to the device, and ends when the device has computed its results.
    """

    def __init__(self, description: Description, seed: int, precision: str, device: Any) -> None:
        self.network = NetworkInJax(description, True, seed, precision, device)
        self._train = jax.jit(self.network.train_step, donate_argnums=(0, 1, 2))
        self._judge = jax.jit(self._evaluate)
        self._compiled: dict[tuple[bool, int], Any] = {}

    def _evaluate(self, weights: Arrays, running: Arrays, inputs: Any, targets: Any) -> tuple[Any, Any]:
        network = self.network
        forward = Forward({**weights, **running}, False, network.precision, network.narrow)
        scores = network.scores(forward, inputs)
        squared = network.description.loss == "mse"
        loss = (mean_squared_error if squared else cross_entropy)(scores, targets)
        classes = targets.argmax(-1) if squared else targets
        return loss, jnp.sum(scores.argmax(-1) == classes)

    def _batch_on_device(self, inputs: np.ndarray, targets: np.ndarray) -> tuple[Any, Any]:
        return self.network.to_device(images_channels_last(inputs)), self.network.to_device(targets)

    def ready(self, inputs: np.ndarray, targets: np.ndarray, train: bool) -> None:
        network = self.network
        batch = self._batch_on_device(inputs, targets)
        if train:
            lowered = self._train.lower(network.weights, network.running, network.optimizer_state, *batch)
        else:
            lowered = self._judge.lower(network.weights, network.running, *batch)
        self._compiled[train, len(targets)] = lowered.compile()

    def learn(self, inputs: np.ndarray, targets: np.ndarray) -> Any:
        network = self.network
        step = self._compiled[True, len(targets)]
        network.weights, network.running, network.optimizer_state, loss = jax.block_until_ready(
            step(network.weights, network.running, network.optimizer_state, *self._batch_on_device(inputs, targets))
        )
        return loss

    def judge(self, inputs: np.ndarray, targets: np.ndarray) -> tuple[Any, Any]:
        network = self.network
        evaluate = self._compiled[False, len(targets)]
        loss, right = jax.block_until_ready(
            evaluate(network.weights, network.running, *self._batch_on_device(inputs, targets))
        )
        return loss, right

    def arrays(self) -> dict[str, np.ndarray]:
        """The weights by PyTorch's names and in its layout: convolutions output x input x height x width."""
        weights = {**self.network.weights, **self.network.running}
        return {name: channels_first(np.asarray(values)) for name, values in weights.items()}
