"""`mlp`: a perceptron with one hidden layer or more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sonda.workloads.description import Description, choice, number, option, whole, widths

if TYPE_CHECKING:
    from sonda.record.protocols import Task


@dataclass(frozen=True)
class Perceptron(Description):
    """Defaults are those of the framework comparison on MNIST: 784-192-10, batch 50, SGD 0.5, mean squared error.

    Hidden layers use the sigmoid and the output the softmax, as its TensorFlow program does; its PyTorch program, which
    gives the loss and the rate, does not print its activations, and without one after the output it would diverge.
    """

    batch: int = option(50, whole(), "samples in a step")
    layers: tuple[int, ...] = option(
        (784, 192, 10), widths(2), "width of the input, of each hidden layer, of the output"
    )
    activation: str = option("sigmoid", choice("sigmoid", "relu", "tanh"), "after each hidden layer")
    loss: str = option("mse", choice("mse", "cross_entropy"), "mse: of the softmax against the class as 0 and 1")
    learning_rate: float = option(0.5, number(), "of SGD")

    @property
    def name(self) -> str:
        return "mlp"

    def in_torch(self, train: bool, seed: int) -> Task:
        from sonda.workloads.in_torch.perceptron import build

        return build(self, train, seed)
