"""`mlp`: a perceptron with one hidden layer or more."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar, Self

from sonda.record.errors import SondaError
from sonda.workloads.description import choice, number, option, whole, widths
from sonda.workloads.networks.image_classifiers import ImageClassifier, option_names
from sonda.workloads.networks.layers import (
    Layer,
    Linear,
    ReLU,
    Sequential,
    Shape,
    Sigmoid,
    Softmax,
    Tanh,
    make_sequential,
)

if TYPE_CHECKING:
    import numpy as np

ACTIVATIONS: dict[str, Layer] = {"sigmoid": Sigmoid(), "relu": ReLU(), "tanh": Tanh()}


@dataclass(frozen=True)
class Perceptron(ImageClassifier):
    """Defaults are those of the framework comparison on MNIST: 784-192-10, batch 50, SGD 0.5, mean squared error.

    Hidden layers use the sigmoid and the output the softmax, as its TensorFlow program does; its PyTorch program, which
    gives the loss and the rate, does not print its activations, and without one after the output it would diverge.
    """

    batch: int = option(50, whole(), "samples in a step")
    layers: tuple[int, ...] = option(
        (784, 192, 10), widths(2), "width of the input, of each hidden layer, of the output"
    )
    activation: str = option("sigmoid", choice(*ACTIVATIONS), "after each hidden layer")
    loss: str = option("mse", choice("mse", "cross_entropy"), "mse: of the softmax against the class as 0 and 1")
    learning_rate: float = option(0.5, number(), "of SGD")

    @property
    def name(self) -> str:
        return "mlp"

    flat: ClassVar[bool] = True

    @property
    def classes(self) -> int:
        return self.layers[-1]

    def structure(self) -> Sequential:
        """Dense layers with an activation between them; the last gives scores, or under `mse` their softmax."""
        chain: list[Layer] = []
        for inputs, outputs in pairwise(self.layers):
            chain += [Linear(inputs, outputs), ACTIVATIONS[self.activation]]
        chain[-1:] = [Softmax()] if self.loss == "mse" else []
        return make_sequential(*chain, named="PerceptronNet")

    def input_shape(self) -> Shape:
        return self.batch, self.layers[0]

    def draw_examples(self, generator: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Uniform values in 0 to 1; uniform classes as int64, or under `mse` as float32 rows of 0 and 1."""
        import numpy as np

        inputs = generator.random((count, self.layers[0]), dtype=np.float32)
        classes = generator.integers(self.classes, size=count)
        return inputs, np.eye(self.classes, dtype=np.float32)[classes] if self.loss == "mse" else classes

    def choose_images(self, options: Mapping[str, str], drawn: bool) -> tuple[tuple[int, int] | None, int | None]:
        side = math.isqrt(self.layers[0])
        square = side * side == self.layers[0]
        if drawn and not square:
            raise SondaError(
                f"mlp: {self.layers[0]} inputs are no square image", "give a first width such as 784, or --data"
            )
        return ((side, side), 1) if square and (drawn or "layers" in option_names(options)) else (None, None)

    def fit_images(self, options: Mapping[str, str], shape: tuple[int, int, int], classes: int, source: str) -> Self:
        values = math.prod(shape)
        if "layers" in option_names(options):
            self.require_equal("layers begin with", self.layers[0], values, f"images of {source} with so many values")
            self.require_outputs(classes, source)
            return self
        return replace(self, layers=(values, *self.layers[1:-1], classes))
