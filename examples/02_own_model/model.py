"""A model of one's own: a function that builds it is enough. Its arguments are options of the command line."""

from torch import nn


def build(width: int = 16) -> nn.Module:
    """A small convolutional network for images of 32 x 32."""
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.MaxPool2d(4),
        nn.Flatten(),
        nn.Linear(width * 8 * 8, 10),
    )
