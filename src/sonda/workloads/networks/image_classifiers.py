"""Networks that classify images. They take the shape of the images that they are trained on, unless options fix it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from sonda.record.errors import SondaError
from sonda.record.protocols import WorkloadProtocol
from sonda.workloads.networks.network import Network

if TYPE_CHECKING:
    import numpy as np

    from sonda.workloads.networks.layers import Shape


@dataclass(frozen=True)
class ImageClassifier(Network):
    """A network that can be trained on images with classes."""

    flat: ClassVar[bool] = False
    """Whether it takes an image as one row of values."""

    def choose_images(self, options: Mapping[str, str], drawn: bool) -> tuple[tuple[int, int] | None, int | None]:
        """Width and height, and channels, with which images should be prepared; None: as they are.

        The options decide. For `drawn` images, which have no size of their own, the network's defaults decide too.
        """
        raise NotImplementedError

    def fit_images(
        self, options: Mapping[str, str], shape: tuple[int, int, int], classes: int, source: str
    ) -> ImageClassifier:
        """The network for images of this shape (channels, height, width) and so many classes.

        Raises SondaError where an option that was given contradicts the images of `source`.
        """
        raise NotImplementedError

    def require_equal(self, label: str, asked: object, actual: object, source: str) -> None:
        """Raise SondaError where an option and the images of `source` differ; `label` names the option in the error."""
        if asked != actual:
            raise SondaError(
                f"{self.name}: {label} {asked}, and {source} has {actual}", "leave it out, or prepare anew"
            )

    def require_outputs(self, classes: int, source: str) -> None:
        """Raise SondaError where there are fewer outputs than classes."""
        if self.classes < classes:
            raise SondaError(
                f"{self.name}: {self.classes} outputs for the {classes} classes of {source}", "give as many"
            )


@dataclass(frozen=True)
class ConvolutionalClassifier(ImageClassifier):
    """Takes images as channels x height x width."""

    @property
    def image(self) -> tuple[int, int]:
        """Height and width."""
        raise NotImplementedError

    @property
    def channels(self) -> int:
        raise NotImplementedError

    def input_shape(self) -> Shape:
        return self.batch, self.channels, *self.image

    def draw_examples(self, generator: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Images of the normal distribution, uniform classes as int64."""
        images = generator.standard_normal((count, self.channels, *self.image), dtype="float32")
        return images, generator.integers(self.classes, size=count)

    def choose_images(self, options: Mapping[str, str], drawn: bool) -> tuple[tuple[int, int] | None, int | None]:
        given = option_names(options)
        image = (self.image[1], self.image[0]) if drawn or "image" in given else None
        return image, self.channels if "channels" in given else None

    def fit_images(self, options: Mapping[str, str], shape: tuple[int, int, int], classes: int, source: str) -> Self:
        given = option_names(options)
        channels, height, width = shape
        if "image" in given:
            self.require_equal("--image", f"{self.image[1]}x{self.image[0]}", f"{width}x{height}", source)
        if "channels" in given:
            self.require_equal("--channels", self.channels, channels, source)
        if "classes" in given:
            self.require_outputs(classes, source)
            classes = self.classes
        changes: dict[str, Any] = {"image": (height, width), "channels": channels, "classes": classes}
        return replace(self, **changes)


def require_classifier(workload: WorkloadProtocol | Any) -> ImageClassifier:
    """The workload itself; raises SondaError where it does not classify images."""
    if not isinstance(workload, ImageClassifier):
        raise SondaError(
            f"{workload.name} cannot be trained on images by epochs", "use mlp, cnn, resnet18, resnet34 or resnet50"
        )
    return workload


def option_names(options: Mapping[str, str]) -> set[str]:
    """The names of options, with `_`."""
    return {name.replace("-", "_") for name in options}
