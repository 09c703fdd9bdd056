"""The perceptron in PyTorch."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from torch import nn

from sonda.workloads.in_torch.task import TorchTask, examples_task, same_examples, sgd, with_weights

if TYPE_CHECKING:
    from sonda.workloads.perceptron import Perceptron

ACTIVATIONS = {"sigmoid": nn.Sigmoid, "relu": nn.ReLU, "tanh": nn.Tanh}


class PerceptronNet(nn.Sequential):
    """Dense layers with an activation between them; the last gives scores, or with `shares` their softmax."""

    def __init__(self, widths: tuple[int, ...], activation: str, shares: bool) -> None:
        layers: list[nn.Module] = []
        for inputs, outputs in itertools.pairwise(widths):
            layers += [nn.Linear(inputs, outputs), ACTIVATIONS[activation]()]
        super().__init__(*layers[:-1], *([nn.Softmax(dim=1)] if shares else []))


def build(description: Perceptron, train: bool, seed: int) -> TorchTask:
    network = PerceptronNet(description.layers, description.activation, shares=description.loss == "mse")
    model = with_weights(network, description, seed)
    loss = nn.MSELoss() if description.loss == "mse" else nn.CrossEntropyLoss()
    examples = same_examples(description, seed)
    return examples_task(model, examples, description.batch, train, seed, loss, sgd(model, description.learning_rate))
