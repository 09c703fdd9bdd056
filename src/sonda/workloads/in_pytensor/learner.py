"""A network in PyTensor that learns batch by batch."""

from __future__ import annotations

from typing import Any

import numpy as np

from sonda.workloads.description import Description
from sonda.workloads.in_pytensor.network import NetworkInPyTensor


class PyTensorLearner:
    """Learns batch by batch. Weights are PyTensor's shared variables, which a training step updates."""

    def __init__(self, description: Description, seed: int, precision: str) -> None:
        self.network = NetworkInPyTensor(description, True, seed, precision)
        self._training: Any = None
        self._evaluation: Any = None

    @property
    def function(self) -> Any:
        """The training step as PyTensor made it."""
        return self._training

    def ready(self, inputs: np.ndarray, targets: np.ndarray, train: bool) -> None:
        """Compile; one function serves all sizes of batches."""
        if not train:
            self._evaluation = self._evaluation or self.network.evaluation()
            self._evaluation(inputs, targets)
            return
        initial = self.arrays()
        self._training = self._training or self.network.training()
        self._training(inputs, targets)
        for name, values in initial.items():
            self.network.weights[name].set_value(values)

    def learn(self, inputs: np.ndarray, targets: np.ndarray) -> float:
        return float(self._training(inputs, targets))

    def judge(self, inputs: np.ndarray, targets: np.ndarray) -> tuple[float, int]:
        loss, right = self._evaluation(inputs, targets)
        return float(loss), int(right)

    def arrays(self) -> dict[str, np.ndarray]:
        """The weights by PyTorch's names, copied."""
        return {name: weight.get_value() for name, weight in self.network.weights.items()}
