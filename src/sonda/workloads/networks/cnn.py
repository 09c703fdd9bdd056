"""`cnn`: three convolutions, two poolings, two dense layers."""

from __future__ import annotations

from dataclasses import dataclass

from sonda.record.errors import SondaError
from sonda.workloads.description import IMAGE, number, option, whole, widths
from sonda.workloads.networks.image_classifiers import ConvolutionalClassifier
from sonda.workloads.networks.layers import Conv2d, Flatten, Linear, MaxPool2d, ReLU, Sequential, make_sequential


@dataclass(frozen=True)
class ConvNet(ConvolutionalClassifier):
    """The small network that frameworks teach with on CIFAR-10: unpadded 3 x 3 convolutions, 2 x 2 maximum pooling."""

    batch: int = option(32, whole(), "samples in a step")
    image: tuple[int, int] = option((32, 32), IMAGE, "width and height")
    channels: int = option(3, whole(), "channels of the image")
    filters: tuple[int, ...] = option((32, 64, 64), widths(3), "filters of the three convolutions")
    hidden: int = option(64, whole(), "width of the first dense layer")
    classes: int = option(10, whole(), "width of the output")
    learning_rate: float = option(0.05, number(), "of SGD")

    @property
    def name(self) -> str:
        return "cnn"

    def check(self) -> None:
        if len(self.filters) != 3:
            raise SondaError(f"cnn: filters has {len(self.filters)} numbers", "give three, such as 32-64-64")
        if min(self.map_size()) < 1:
            height, width = self.image
            raise SondaError(f"cnn: nothing is left of an image of {width}x{height}", "use 18x18 or more")

    def map_size(self) -> tuple[int, int]:
        """Height and width of the output of the last convolution."""

        def shrink(side: int) -> int:
            return ((side - 2) // 2 - 2) // 2 - 2

        return shrink(self.image[0]), shrink(self.image[1])

    def structure(self) -> Sequential:
        """Convolution, pooling, convolution, pooling, convolution, dense, dense."""
        first, second, third = self.filters
        height, width = self.map_size()
        features = make_sequential(
            Conv2d(self.channels, first, 3), ReLU(), MaxPool2d(2, 2),
            Conv2d(first, second, 3), ReLU(), MaxPool2d(2, 2),
            Conv2d(second, third, 3), ReLU(),
        )  # fmt: skip
        classifier = make_sequential(
            Flatten(), Linear(third * height * width, self.hidden), ReLU(), Linear(self.hidden, self.classes)
        )
        return Sequential((("features", features), ("classifier", classifier)), "ConvolutionalNet")
