"""Fitting: a network takes the shape of the images that it is trained on, unless its options say otherwise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from sonda.record.errors import SondaError
from sonda.record.protocols import Workload
from sonda.workloads.convnet import ConvNet
from sonda.workloads.perceptron import Perceptron
from sonda.workloads.resnet import ResNet

Trainable = ConvNet | ResNet | Perceptron
"""What can be trained on images with classes."""


def trainable(workload: Workload) -> Trainable:
    """The workload, or SondaError where it does not tell images apart."""
    if not isinstance(workload, (ConvNet, ResNet, Perceptron)):
        raise SondaError(
            f"{workload.name} cannot be trained on images by epochs", "use mlp, cnn, resnet18, resnet34 or resnet50"
        )
    return workload


def wanted_images(
    workload: Trainable, options: Mapping[str, str], drawn: bool
) -> tuple[tuple[int, int] | None, int | None]:
    """Width and height, and channels, that images should be prepared with; None: as they are.

    What the options say; for `drawn` images, which have no size of their own, also what the network has by itself.
    """
    given = _given(options)
    if isinstance(workload, Perceptron):
        side = math.isqrt(workload.layers[0])
        square = side * side == workload.layers[0]
        if drawn and not square:
            raise SondaError(
                f"mlp: {workload.layers[0]} inputs are no square image", "give a first width such as 784, or --data"
            )
        return ((side, side), 1) if square and (drawn or "layers" in given) else (None, None)
    image = (workload.image[1], workload.image[0]) if drawn or "image" in given else None
    return image, workload.channels if "channels" in given else None


def fitted(
    workload: Trainable, options: Mapping[str, str], shape: tuple[int, int, int], classes: int, source: str
) -> Trainable:
    """The network for images of this shape (channels, height, width) and so many classes.

    Raises SondaError where an option that was given contradicts the images of `source`.
    """
    given = _given(options)
    channels, height, width = shape
    if isinstance(workload, Perceptron):
        pixels = channels * height * width
        inner = workload.layers
        if "layers" in given:
            _agree(workload, "layers begin with", inner[0], pixels, f"images of {source} with so many values")
            _enough(workload, inner[-1], classes, source)
            return workload
        return replace(workload, layers=(pixels, *inner[1:-1], classes))
    if "image" in given:
        found = f"{workload.image[1]}x{workload.image[0]}"
        _agree(workload, "--image", found, f"{width}x{height}", source)
    if "channels" in given:
        _agree(workload, "--channels", workload.channels, channels, source)
    if "classes" in given:
        _enough(workload, workload.classes, classes, source)
        classes = workload.classes
    return replace(workload, image=(height, width), channels=channels, classes=classes)


def _given(options: Mapping[str, str]) -> set[str]:
    return {name.replace("-", "_") for name in options}


def _agree(workload: Trainable, what: str, asked: object, there: object, source: str) -> None:
    if asked != there:
        raise SondaError(f"{workload.name}: {what} {asked}, and {source} has {there}", "leave it out, or prepare anew")


def _enough(workload: Trainable, asked: int, classes: int, source: str) -> None:
    if asked < classes:
        raise SondaError(f"{workload.name}: {asked} outputs for the {classes} classes of {source}", "give as many")
