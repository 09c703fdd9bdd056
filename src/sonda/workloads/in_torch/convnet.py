"""The small convolutional network in PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from sonda.workloads.in_torch.images import classify_images
from sonda.workloads.in_torch.task import TorchTask, with_weights

if TYPE_CHECKING:
    from sonda.workloads.convnet import ConvNet


class ConvolutionalNet(nn.Module):
    """Convolution, pooling, convolution, pooling, convolution, dense, dense."""

    def __init__(self, description: ConvNet) -> None:
        super().__init__()
        first, second, third = description.filters
        height, width = description.map_size()
        self.features = nn.Sequential(
            nn.Conv2d(description.channels, first, 3), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(first, second, 3), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(second, third, 3), nn.ReLU(),
        )  # fmt: skip
        self.classifier = nn.Sequential(
            nn.Flatten(),
            nn.Linear(third * height * width, description.hidden),
            nn.ReLU(),
            nn.Linear(description.hidden, description.classes),
        )

    def forward(self, images: Tensor) -> Tensor:
        return self.classifier(self.features(images))


def build(description: ConvNet, train: bool, seed: int) -> TorchTask:
    return classify_images(with_weights(ConvolutionalNet(description), description, seed), description, train, seed)
