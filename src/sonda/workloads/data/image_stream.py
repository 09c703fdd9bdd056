"""A stream of images: read, decoded and augmented one by one, as in programs that train on CIFAR-10.

An image is read from its source, converted to the network's size and colours, and scaled to (value - 0.5) / 0.25. It is
padded with 4 zeros, cropped at random to its size and mirrored at random (He et al., Deep Residual Learning for Image
Recognition, section 4.2). Random choices depend only on the seed, the round through the data and the image, so batches
are the same in every framework and with any number of workers. Only NumPy is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from threading import Thread
from time import perf_counter
from typing import Any

import numpy as np

from sonda.record.errors import SondaError
from sonda.record.protocols import WorkloadProtocol
from sonda.workloads.data.cifar_like import CIFAR_LIKE, cifar_like
from sonda.workloads.data.drawn_fish import DRAWN, fish_source
from sonda.workloads.data.layouts import open_source
from sonda.workloads.data.manifest import MANIFEST
from sonda.workloads.data.prepared import Prepared, load
from sonda.workloads.data.resize import resize, to_unit
from sonda.workloads.data.source import ImageSource
from sonda.workloads.networks.examples import draw_positions

BORDER = 4
MIDDLE, SPREAD = np.float32(0.5), np.float32(0.25)
FISH = 100
"""Number of drawn fish of each kind; a fish is drawn when it is read."""
Batch = tuple[np.ndarray, np.ndarray]
"""Images (samples x channels x height x width, float32) and classes (int64)."""


@dataclass(frozen=True)
class Shape:
    """The images and classes that a network takes."""

    channels: int
    height: int
    width: int
    classes: int


class ImageStream:
    """An endless stream of examples. With `cache` all images are decoded at the beginning and stay in memory."""

    def __init__(self, source: ImageSource | Prepared, shape: Shape, seed: int, cache: bool = False) -> None:
        self.shape = shape
        self.seed = seed
        self._source = source
        parts = (
            source.parts
            if isinstance(source, ImageSource)
            else [(part.name, part.count) for part in source.manifest.parts]
        )
        # A part for testing is not trained on.
        self.length = dict(parts)["train"] if parts and parts[0][0] == "train" else len(source.labels)
        if len(source.classes) > shape.classes:
            raise SondaError(
                f"the data has {len(source.classes)} classes, the network {shape.classes}",
                f"use --classes {len(source.classes)}",
            )
        self.filling_s = 0.0
        """Time to fill the cache, s."""
        self._cache: np.ndarray | None = None
        if cache:
            begin = perf_counter()
            self._cache = np.stack([self._decode(number) for number in range(self.length)])
            self.filling_s = perf_counter() - begin

    def __len__(self) -> int:
        return self.length

    @property
    def cache_bytes(self) -> int:
        """Memory of the cache, bytes."""
        return 0 if self._cache is None else self._cache.nbytes

    @property
    def note(self) -> str:
        """A note about the cache for the run; '' without a cache."""
        if self._cache is None:
            return ""
        return (
            f"{self.length:,} decoded images take {self.cache_bytes / 1e6:.0f} MB of memory; "
            f"filling it took {self.filling_s:.2g} s before the steps, not in them"
        )

    def example(self, place: int) -> tuple[np.ndarray, int]:
        """The image and its class at a position of the endless stream: `round * len(stream) + number`."""
        number = place % self.length
        image = self._cache[number] if self._cache is not None else self._decode(number)
        return self._augment(image, place), int(self._source.labels[number])

    def places(self) -> Iterator[int]:
        """Positions in the order of training, without end; every round has its own order."""
        for count, number in enumerate(draw_positions(self.length, self.seed)):
            yield count // self.length * self.length + number

    def batches(self, batch: int) -> Iterator[Batch]:
        """Batches of `batch` examples, without end."""
        places = self.places()
        while True:
            examples = [self.example(next(places)) for _ in range(batch)]
            yield np.stack([image for image, _ in examples]), np.array([kind for _, kind in examples], np.int64)

    def _decode(self, number: int) -> np.ndarray:
        if isinstance(self._source, Prepared):
            planes = self._source.images[number].astype(np.float32)[None]
            if planes.shape[1] != self.shape.channels:
                raise SondaError(
                    f"the prepared images have {planes.shape[1]} channels, the network {self.shape.channels}",
                    f"use --channels {planes.shape[1]}, or prepare them anew",
                )
        else:
            planes = to_unit(self._source.read(number)[None], self.shape.channels)
        planes = resize(planes, self.shape.width, self.shape.height)[0]
        return (planes - MIDDLE) / SPREAD

    def _augment(self, image: np.ndarray, place: int) -> np.ndarray:
        bits = _mix_bits(self.seed, place)
        channels, height, width = image.shape
        wide = np.zeros((channels, height + 2 * BORDER, width + 2 * BORDER), np.float32)
        wide[:, BORDER : BORDER + height, BORDER : BORDER + width] = image
        down, across = bits % (2 * BORDER + 1), (bits >> 8) % (2 * BORDER + 1)
        cut = wide[:, down : down + height, across : across + width]
        return np.ascontiguousarray(cut[:, :, ::-1] if bits >> 16 & 1 else cut)


def image_stream(workload: WorkloadProtocol, data: str, seed: int, cache: bool = False) -> ImageStream:
    """The stream of images that a workload is trained on: a folder, a prepared data set, `cifar10-like` or `drawn`.

    Raises SondaError where there are no such data, or the workload takes no images.
    """
    about: Any = workload
    if not hasattr(about, "image") or not hasattr(about, "channels"):
        raise SondaError(f"{workload.name} takes no images", "leave out --data, or use cnn or resnet18, 34, 50")
    height, width = about.image
    shape = Shape(about.channels, height, width, about.classes)
    return ImageStream(open_data(data), shape, seed, cache)


def open_data(data: str) -> ImageSource | Prepared:
    """The data that `--data` names."""
    if data == CIFAR_LIKE:
        return cifar_like()
    if data == DRAWN:
        return fish_source(FISH)
    folder = Path(data)
    return load(folder) if (folder / MANIFEST).is_file() else open_source(folder)


def prefetch(batches: Iterator[Batch], count: int) -> Iterator[Batch]:
    """The same batches, made up to `count` ahead by a thread, for frameworks without a loader."""
    waiting: Queue[Any] = Queue(maxsize=count)

    def load() -> None:
        try:
            for batch in batches:
                waiting.put(batch)
        except BaseException as error:
            waiting.put(error)

    Thread(target=load, name="sonda-prefetch", daemon=True).start()
    while True:
        batch = waiting.get()
        if isinstance(batch, BaseException):
            raise batch
        yield batch


def _mix_bits(seed: int, place: int) -> int:
    """64 pseudo-random bits (splitmix64, Steele et al. 2014). Making a generator would cost more than the image."""
    bits = (seed * 0x9E3779B97F4A7C15 + place * 0xD1342543DE82EF95 + 0x9E3779B97F4A7C15) & (1 << 64) - 1
    bits = ((bits ^ bits >> 30) * 0xBF58476D1CE4E5B9) & (1 << 64) - 1
    bits = ((bits ^ bits >> 27) * 0x94D049BB133111EB) & (1 << 64) - 1
    return bits ^ bits >> 31
