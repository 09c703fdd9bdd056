"""`resnet18`, `resnet34`, `resnet50`: residual networks for images of any size and number of channels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sonda.record.errors import SondaError
from sonda.workloads.description import IMAGE, Description, number, option, whole

if TYPE_CHECKING:
    from sonda.record.protocols import Task

BLOCKS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3)}
"""Blocks in each of the four stages (He et al., Deep Residual Learning for Image Recognition, table 1)."""
BOTTLENECK_FROM = 50
"""Networks of this depth or more use blocks of three convolutions."""


@dataclass(frozen=True)
class ResNet(Description):
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

    def in_torch(self, train: bool, seed: int) -> Task:
        from sonda.workloads.in_torch.resnet import build

        if train:
            self.check_training()
        return build(self, train, seed)

    def check_training(self) -> None:
        """Raise SondaError where normalisation would be over a single value, which is undefined."""
        # The network halves the image five times.
        if self.batch == 1 and max(self.image) <= 32:
            raise SondaError(
                f"{self.name} cannot be trained on one image of {self.image[1]}x{self.image[0]}: "
                "batch normalisation is left with one value per channel",
                "use batch 2 or an image above 32x32",
            )
