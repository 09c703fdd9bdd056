"""Networks that tell images apart: they take the shape of the images that they are trained on, unless their options say
otherwise."""

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
    """Can be trained on images with classes."""

    flat: ClassVar[bool] = False
    """Whether it takes an image as one row of values."""

    def choose_images(self, options: Mapping[str, str], drawn: bool) -> tuple[tuple[int, int] | None, int | None]:
        """Width and height, and channels, that images should be prepared with; None: as they are.

        What the options say; for `drawn` images, which have no size of their own, also what the network has by itself.
        """
        raise NotImplementedError

    def fit_images(
        self, options: Mapping[str, str], shape: tuple[int, int, int], classes: int, source: str
    ) -> ImageClassifier:
        """The network for images of this shape (channels, height, width) and so many classes.

        Raises SondaError where an option that was given contradicts the images of `source`.
        """
        raise NotImplementedError

    def require_equal(self, what: str, asked: object, there: object, source: str) -> None:
        """Raise SondaError where an option and the images of `source` differ."""
        if asked != there:
            raise SondaError(f"{self.name}: {what} {asked}, and {source} has {there}", "leave it out, or prepare anew")

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
        given = given_names(options)
        image = (self.image[1], self.image[0]) if drawn or "image" in given else None
        return image, self.channels if "channels" in given else None

    def fit_images(self, options: Mapping[str, str], shape: tuple[int, int, int], classes: int, source: str) -> Self:
        given = given_names(options)
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
    """The workload, or SondaError where it does not tell images apart."""
    if not isinstance(workload, ImageClassifier):
        raise SondaError(
            f"{workload.name} cannot be trained on images by epochs", "use mlp, cnn, resnet18, resnet34 or resnet50"
        )
    return workload


def given_names(options: Mapping[str, str]) -> set[str]:
    """The names of options, with `_`."""
    return {name.replace("-", "_") for name in options}
