"""Residual networks in PyTorch (He et al., Deep Residual Learning for Image Recognition)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from sonda.workloads.in_torch.images import classify_images
from sonda.workloads.in_torch.task import TorchTask, with_weights
from sonda.workloads.resnet import BLOCKS, BOTTLENECK_FROM

if TYPE_CHECKING:
    from sonda.workloads.resnet import ResNet


def convolution(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    """Padded so that stride 1 keeps the size; without bias, as a normalisation follows."""
    return nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)


class Residual(nn.Module):
    """Adds what its convolutions make to what came in; where shapes differ, a 1 x 1 convolution adapts the latter."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * self.expansion
        self.body = self.make_body(inputs, width, stride)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))
        self.activation = nn.ReLU(inplace=True)

    def make_body(self, inputs: int, width: int, stride: int) -> nn.Sequential:
        return nn.Sequential(
            convolution(inputs, width, 3, stride), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            convolution(width, width, 3), nn.BatchNorm2d(width),
        )  # fmt: skip

    def forward(self, maps: Tensor) -> Tensor:
        return self.activation(self.body(maps) + self.shortcut(maps))


class Bottleneck(Residual):
    """Three convolutions, the middle one narrow; the stride is in the middle one, as in all today's libraries."""

    expansion = 4

    def make_body(self, inputs: int, width: int, stride: int) -> nn.Sequential:
        return nn.Sequential(
            convolution(inputs, width, 1), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            convolution(width, width, 3, stride), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            convolution(width, 4 * width, 1), nn.BatchNorm2d(4 * width),
        )  # fmt: skip


class ResidualNet(nn.Module):
    """Stem, four stages of residual blocks, mean over the image, dense layer."""

    def __init__(self, depth: int, channels: int, classes: int) -> None:
        super().__init__()
        block = Bottleneck if depth >= BOTTLENECK_FROM else Residual
        self.stem = nn.Sequential(
            nn.Conv2d(channels, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )  # fmt: skip
        width = 64
        stages = []
        for stage, count in enumerate(BLOCKS[depth]):
            blocks = []
            for number in range(count):
                blocks.append(block(width, 64 * 2**stage, 2 if stage and not number else 1))
                width = 64 * 2**stage * block.expansion
            stages.append(nn.Sequential(*blocks))
        self.stages = nn.Sequential(*stages)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        self.classifier = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.classifier(self.flatten(self.pool(self.stages(self.stem(images)))))


def build(description: ResNet, train: bool, seed: int) -> TorchTask:
    model = ResidualNet(description.depth, description.channels, description.classes)
    return classify_images(with_weights(model, description, seed), description, train, seed)
