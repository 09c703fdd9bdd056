"""A stream of images: read, decoded and augmented one by one, as programs that train on CIFAR-10 do it.

An image is read from its source, brought to the network's size and colours, scaled to (value - 0.5) / 0.25, then cut at
random out of itself with a border of 4 zeros around it and mirrored or not (He et al., Deep Residual Learning for Image
Recognition, section 4.2). What is drawn at random depends on the seed, the round through the data and the image alone,
so that batches are the same in every framework and with any number of workers. NumPy only.
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
from sonda.workloads.data.source import Source
from sonda.workloads.networks.examples import positions

BORDER = 4
MIDDLE, SPREAD = np.float32(0.5), np.float32(0.25)
FISH = 100
"""Drawn fish of each kind: the outline of each is computed when it is read."""
Batch = tuple[np.ndarray, np.ndarray]
"""Images (samples x channels x height x width, float32) and classes (int64)."""


@dataclass(frozen=True)
class Shape:
    """What the network wants."""

    channels: int
    height: int
    width: int
    classes: int


class ImageStream:
    """Examples by number, from 0. With `cache` all are decoded when the stream is made, and stay in memory."""

    def __init__(self, source: Source | Prepared, shape: Shape, seed: int, cache: bool = False) -> None:
        self.shape = shape
        self.seed = seed
        self._source = source
        parts = source.parts if isinstance(source, Source) else [(one.name, one.count) for one in source.manifest.parts]
        # What came as a part for testing is not trained on.
        known = dict(parts)
        self.length = known["train"] if parts and parts[0][0] == "train" else len(source.labels)
        if len(source.classes) > shape.classes:
            raise SondaError(
                f"the data has {len(source.classes)} classes, the network {shape.classes}",
                f"use --classes {len(source.classes)}",
            )
        self.filling_s = 0.0
        """How long it took to fill the cache."""
        self._kept: np.ndarray | None = None
        if cache:
            begin = perf_counter()
            self._kept = np.stack([self._decoded(number) for number in range(self.length)])
            self.filling_s = perf_counter() - begin

    def __len__(self) -> int:
        return self.length

    @property
    def kept_bytes(self) -> int:
        """Memory of the cache."""
        return 0 if self._kept is None else self._kept.nbytes

    @property
    def note(self) -> str:
        """What the run should say of the cache; '' without one."""
        if self._kept is None:
            return ""
        return (
            f"{self.length:,} decoded images take {self.kept_bytes / 1e6:.0f} MB of memory; "
            f"filling it took {self.filling_s:.2g} s before the steps, not in them"
        )

    def example(self, place: int) -> tuple[np.ndarray, int]:
        """The image and its class at a place of the endless row: `round * len(stream) + number`."""
        number = place % self.length
        image = self._kept[number] if self._kept is not None else self._decoded(number)
        return self._augmented(image, place), int(self._source.labels[number])

    def places(self) -> Iterator[int]:
        """Places in the order of training, without end: another order in every round."""
        for count, number in enumerate(positions(self.length, self.seed)):
            yield count // self.length * self.length + number

    def batches(self, batch: int) -> Iterator[Batch]:
        """Batches without end."""
        places = self.places()
        while True:
            found = [self.example(next(places)) for _ in range(batch)]
            yield np.stack([image for image, _ in found]), np.array([kind for _, kind in found], np.int64)

    def _decoded(self, number: int) -> np.ndarray:
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

    def _augmented(self, image: np.ndarray, place: int) -> np.ndarray:
        bits = _mixed(self.seed, place)
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
    return ImageStream(source_of(data), shape, seed, cache)


def source_of(data: str) -> Source | Prepared:
    """What `--data` names."""
    if data == CIFAR_LIKE:
        return cifar_like()
    if data == DRAWN:
        return fish_source(FISH)
    folder = Path(data)
    return load(folder) if (folder / MANIFEST).is_file() else open_source(folder)


def ahead(batches: Iterator[Batch], count: int) -> Iterator[Batch]:
    """The same batches, made by a thread that is up to `count` of them ahead: for frameworks without a loader."""
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


def _mixed(seed: int, place: int) -> int:
    """64 bits that look random (splitmix64, Steele et al. 2014): making a generator would cost more than the image."""
    bits = (seed * 0x9E3779B97F4A7C15 + place * 0xD1342543DE82EF95 + 0x9E3779B97F4A7C15) & (1 << 64) - 1
    bits = ((bits ^ bits >> 30) * 0xBF58476D1CE4E5B9) & (1 << 64) - 1
    bits = ((bits ^ bits >> 27) * 0x94D049BB133111EB) & (1 << 64) - 1
    return bits ^ bits >> 31
