"""What the description of a built-in network has beside its options: its layers, examples, loss and optimizer.

Every framework builds a network from these alone. `lstm` and `dlrm` exist in PyTorch only, and are no such networks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sonda.record.errors import SondaError
from sonda.record.protocols import WorkloadProtocol
from sonda.workloads.description import Description

if TYPE_CHECKING:
    import numpy as np

    from sonda.record.protocols import Task
    from sonda.workloads.networks.layers import Layer, Shape


@dataclass(frozen=True)
class Network(Description):
    """A workload that every framework builds from one definition. Subclasses have the options."""

    @property
    def batch(self) -> int:
        """Samples in a step."""
        raise NotImplementedError

    @property
    def classes(self) -> int:
        """Width of the output."""
        raise NotImplementedError

    @property
    def learning_rate(self) -> float:
        raise NotImplementedError

    @property
    def loss(self) -> str:
        """`cross_entropy` of scores and classes, or `mse` of shares and rows of 0 and 1."""
        return "cross_entropy"

    @property
    def optimizer(self) -> str:
        """`sgd` or `adamw`."""
        return "sgd"

    def structure(self) -> Layer:
        """The layers of the network."""
        raise NotImplementedError

    def input_shape(self) -> Shape:
        """The shape of the input of one step."""
        raise NotImplementedError

    def draw_examples(self, generator: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and targets; row i of each is example i."""
        raise NotImplementedError

    def step_tokens(self, train: bool) -> tuple[int, dict[str, int]]:
        """Tokens that a step processes, and each of its phases where these differ; 0 where that has no meaning."""
        return 0, {}

    def check_training(self) -> None:
        """Raise SondaError where the network can be built but not trained."""

    def in_torch(self, train: bool, seed: int) -> Task:
        from sonda.workloads.in_torch.network import build

        return build(self, train, seed)


def require_network(workload: WorkloadProtocol | Any) -> Network:
    """The workload itself; raises SondaError where it is no network that every framework builds."""
    if not isinstance(workload, Network):
        raise SondaError(
            f"{workload.name} is not there as a network of every framework",
            "use mlp, cnn, resnet18, resnet34, resnet50 or transformer, or --framework torch",
        )
    return workload
