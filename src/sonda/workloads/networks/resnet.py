"""`resnet18`, `resnet34`, `resnet50`: residual networks for images of any size and number of channels.

He et al., Deep Residual Learning for Image Recognition.
"""

from __future__ import annotations

from dataclasses import dataclass

from sonda.record.errors import SondaError
from sonda.workloads.description import IMAGE, number, option, whole
from sonda.workloads.networks.image_classifiers import ConvolutionalClassifier
from sonda.workloads.networks.layers import (
    AdaptiveAvgPool2d,
    BatchNorm2d,
    Conv2d,
    Flatten,
    Layer,
    Linear,
    MaxPool2d,
    ReLU,
    Residual,
    Sequential,
    make_sequential,
)

BLOCKS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3)}
"""Blocks in each of the four stages (table 1 of the paper)."""
BOTTLENECK_FROM = 50
"""Networks of this depth or more use blocks of three convolutions."""
RELU = ReLU(in_place=True)


@dataclass(frozen=True)
class ResNet(ConvolutionalClassifier):
    """Image of 64x64 by default, so that a step is short on two cores; ImageNet's own size is 224x224."""

    depth: int
    batch: int = option(8, whole(), "samples in a step")
    image: tuple[int, int] = option((64, 64), IMAGE, "width and height")
    channels: int = option(3, whole(), "channels of the image; 1 for grey")
    classes: int = option(1000, whole(), "width of the output")
    learning_rate: float = option(0.05, number(), "of SGD")

    @property
    def name(self) -> str:
        return f"resnet{self.depth}"

    def structure(self) -> Sequential:
        """Stem, four stages of residual blocks, mean over the image, dense layer."""
        make_block, expansion = (make_bottleneck, 4) if self.depth >= BOTTLENECK_FROM else (make_residual, 1)
        width = 64
        stages = []
        for stage, count in enumerate(BLOCKS[self.depth]):
            blocks = []
            for position in range(count):
                blocks.append(make_block(width, 64 * 2**stage, 2 if stage and not position else 1))
                width = 64 * 2**stage * expansion
            stages.append(make_sequential(*blocks))
        parts: dict[str, Layer] = {
            "stem": make_sequential(
                make_convolution(self.channels, 64, 7, 2), BatchNorm2d(64), RELU, MaxPool2d(3, 2, 1)
            ),
            "stages": make_sequential(*stages),
            "pool": AdaptiveAvgPool2d(),
            "flatten": Flatten(),
            "classifier": Linear(width, self.classes),
        }
        return Sequential(tuple(parts.items()), "ResidualNet")

    def check_training(self) -> None:
        """Raise SondaError where normalisation would be over a single value, which is undefined."""
        # The network halves the image five times.
        if self.batch == 1 and max(self.image) <= 32:
            raise SondaError(
                f"{self.name} cannot be trained on one image of {self.image[1]}x{self.image[0]}: "
                "batch normalisation is left with one value per channel",
                "use batch 2 or an image above 32x32",
            )


def make_convolution(inputs: int, outputs: int, kernel: int, stride: int = 1) -> Conv2d:
    """Padded so that stride 1 keeps the size; without bias, as a normalisation follows."""
    return Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False, initial="fan_out")


def make_residual(inputs: int, width: int, stride: int) -> Residual:
    """Two convolutions."""
    body = make_sequential(
        make_convolution(inputs, width, 3, stride), BatchNorm2d(width), RELU,
        make_convolution(width, width, 3), BatchNorm2d(width),
    )  # fmt: skip
    return Residual(body, make_shortcut(inputs, width, stride), RELU)


def make_bottleneck(inputs: int, width: int, stride: int) -> Residual:
    """Three convolutions, the middle one narrow; the stride is in the middle one, as in all today's libraries."""
    body = make_sequential(
        make_convolution(inputs, width, 1), BatchNorm2d(width), RELU,
        make_convolution(width, width, 3, stride), BatchNorm2d(width), RELU,
        make_convolution(width, 4 * width, 1), BatchNorm2d(4 * width),
    )  # fmt: skip
    return Residual(body, make_shortcut(inputs, 4 * width, stride), RELU, named="Bottleneck")


def make_shortcut(inputs: int, outputs: int, stride: int) -> Sequential:
    """Past the body: nothing, or a 1 x 1 convolution where shapes differ."""
    if stride == 1 and inputs == outputs:
        return Sequential()
    return make_sequential(make_convolution(inputs, outputs, 1, stride), BatchNorm2d(outputs))
