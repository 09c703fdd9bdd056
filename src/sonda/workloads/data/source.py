"""Sources of images with their classes, which can be read one by one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np


class Skipped(msgspec.Struct, frozen=True):
    """An image that was left out, and why."""

    name: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class ImageSource(ABC):
    """Images in a fixed order, part after part. `prepare` needs nothing else of a source."""

    layout: str
    """The kind of source, as `--layout` names it."""
    name: str
    classes: tuple[str, ...]
    labels: np.ndarray
    """Class of every image, int64."""
    parts: tuple[tuple[str, int], ...] = ()
    """Names and sizes of the parts that the images come in; empty where they have none."""
    left_out: tuple[Skipped, ...] = ()
    """Files that are no images."""
    origin: dict[str, str] = field(default_factory=dict)
    """How the source itself was made, where it says so."""

    @abstractmethod
    def title(self, number: int) -> str:
        """The image's name in messages."""

    @abstractmethod
    def size(self, number: int) -> tuple[int, int]:
        """Width and height in pixels. Raises BadImageError."""

    @abstractmethod
    def read(self, number: int) -> np.ndarray:
        """Height x width x channels, uint8 or uint16. Raises BadImageError."""


@dataclass(frozen=True, kw_only=True)
class ArraySource(ImageSource):
    """Images that are arrays already, all of one size, with one array for each part."""

    images: Sequence[np.ndarray]
    """Images x height x width x channels, uint8."""

    def title(self, number: int) -> str:
        part, at = self._place(number)
        return f"{self.parts[part][0]} image {at}"

    def size(self, number: int) -> tuple[int, int]:
        height, width = self.images[0].shape[1:3]
        return width, height

    def read(self, number: int) -> np.ndarray:
        part, at = self._place(number)
        return self.images[part][at]

    def _place(self, number: int) -> tuple[int, int]:
        part = 0
        while number >= len(self.images[part]):
            number -= len(self.images[part])
            part += 1
        return part, number
