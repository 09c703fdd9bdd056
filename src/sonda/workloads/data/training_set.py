"""The data of a whole training: a prepared set, prepared now where needed, and its shares for training, validation
and test."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from sonda.record.errors import SondaError
from sonda.record.progress import Say
from sonda.workloads.data.cifar_like import CIFAR_LIKE, cifar_like
from sonda.workloads.data.drawn_fish import DRAWN, fish_source
from sonda.workloads.data.layouts import open_source
from sonda.workloads.data.manifest import MANIFEST
from sonda.workloads.data.preparation import prepare_source
from sonda.workloads.data.prepared import Prepared, load
from sonda.workloads.data.source import ImageSource
from sonda.workloads.data.splits import check_fractions
from sonda.workloads.data.splits import split as split_by_class

FISH = 1000
"""Number of drawn fish of each kind, as in the photographed data set."""
SPLIT = "0.85/0.02/0.13"
NAMED = 3
"""Most skipped files that a sentence names."""
PARTS = ("train", "validate", "test")


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """A prepared data set and the numbers of the images of each share, by part: train, validate, test."""

    prepared: Prepared
    shares: dict[str, np.ndarray]

    @property
    def digest(self) -> str:
        """SHA-256 over the checksums of images and classes."""
        entries = sorted((name, entry.sha256) for name, entry in self.prepared.manifest.files.items())
        return hashlib.sha256(msgspec.json.encode(entries)).hexdigest()

    @property
    def words(self) -> str:
        """A short description of the set."""
        made = self.prepared.manifest.made
        _, channels, height, width = self.prepared.manifest.shape
        drawn = ", drawn" if "drawn by" in made.origin else ""
        return f"{made.source} ({made.layout}{drawn}), {width}x{height}, {'grey' if channels == 1 else 'rgb'}"

    @property
    def skipped(self) -> str:
        """A sentence about the files that were skipped when the set was prepared; '' where there are none."""
        skipped = self.prepared.manifest.skipped
        if not skipped:
            return ""
        named = ", ".join(f"{file.name} ({file.reason})" for file in skipped[:NAMED])
        more = f" and {len(skipped) - NAMED:,} more" if len(skipped) > NAMED else ""
        files = "file" if len(skipped) == 1 else "files"
        return f"{self.prepared.manifest.made.source}: {len(skipped):,} {files} left out: {named}{more}"


def parse_split(split: str) -> tuple[float, float, float]:
    """`0.85/0.02/0.13` as numbers that add up to 1: training, validation, test. Raises SondaError."""
    try:
        train, validate, test = (float(fraction) for fraction in split.split("/"))
    except ValueError:
        raise SondaError(
            f"--split {split!r} is not three fractions", f"write training/validation/test, such as {SPLIT}"
        ) from None
    check_fractions((train, validate, test))
    return train, validate, test


def divide(prepared: Prepared, split: str = SPLIT, images: int = 0, seed: int = 0) -> TrainingSet:
    """Divide a set into shares, with every class in proportion. `images` limits the images of each class (0: all).

    A set that came with a test part keeps it; the rest is divided into training and validation in proportion.
    """
    train, validate, test = parse_split(split)
    parts = [part.name for part in prepared.manifest.parts]
    numbers = np.arange(len(prepared))
    if "test" in parts and "train" in parts:
        rest, tested = (_limit_per_class(prepared, prepared.part(name), images) for name in ("train", "test"))
        whole = train + validate
        if not whole > 0:
            raise SondaError(f"--split {split} leaves nothing to train on", f"write it like {SPLIT}")
        shares = _split(prepared, rest, (train / whole, 1 - train / whole), seed)
        return TrainingSet(prepared, dict(zip(PARTS, (*shares, tested), strict=True)))
    shares = _split(prepared, _limit_per_class(prepared, numbers, images), (train, validate, test), seed)
    return TrainingSet(prepared, dict(zip(PARTS, shares, strict=True)))


def _split(prepared: Prepared, numbers: np.ndarray, fractions: tuple[float, ...], seed: int) -> list[np.ndarray]:
    shares = [numbers[share] for share in split_by_class(prepared.labels[numbers], fractions, seed)]
    if not len(shares[0]):
        raise SondaError("the training share is empty", "give it a fraction above 0")
    return shares


def _limit_per_class(prepared: Prepared, numbers: np.ndarray, images: int) -> np.ndarray:
    """The first `images` numbers of each class (0: all); the order of a prepared set is random already."""
    if not images:
        return numbers
    labels = prepared.labels[numbers]
    members = [np.flatnonzero(labels == kind)[:images] for kind in range(len(prepared.classes))]
    return numbers[np.sort(np.concatenate(members))]


def make_ready(
    data: str,
    root: Path,
    image: tuple[int, int] | None = None,
    channels: int | None = None,
    images: int = 0,
    say: Say | None = None,
) -> Path:
    """The directory of the prepared set that `data` names. Raises SondaError where there is none.

    A prepared set is used as it is. A folder of images, MNIST's or CIFAR-10's files, or `drawn` fish (also for '') are
    prepared once under `root` and found there the next time. `image` is (width, height) in pixels; `channels` is 1 for
    grey, 3 for colour.
    """
    if data and data != DRAWN and (Path(data) / MANIFEST).is_file():
        return Path(data).resolve()
    source: ImageSource
    if not data or data == DRAWN:
        source, origin = fish_source(images or FISH), f"{images or FISH} fish"
    elif data == CIFAR_LIKE:
        source, origin = cifar_like(), CIFAR_LIKE
    else:
        source, origin = open_source(Path(data)), _fingerprint_folder(Path(data))
    if channels not in (None, 1, 3):
        raise SondaError(f"images of {channels} channels cannot be prepared", "use 1 (grey) or 3 (rgb)")
    colour = "rgb" if channels == 3 or (channels is None and source.layout == "cifar10") else "grey"
    key = hashlib.sha256(repr((source.layout, source.origin, origin, image, colour)).encode()).hexdigest()[:16]
    place = root / "data" / f"{source.name}-{key}"
    if not (place / MANIFEST).is_file():
        if say:
            say(f"preparing {source.name} in {place}")
        try:
            prepare_source(source, place, image, colour, 0, replace=place.exists(), say=say)
        except SondaError:
            if not (place / MANIFEST).is_file():  # else another process was faster
                raise
    load(place)
    return place.resolve()


def _fingerprint_folder(folder: Path) -> str:
    """A hash of the names, sizes and dates of all files: a changed folder is prepared again."""
    checksum = hashlib.sha256(str(folder.resolve()).encode(errors="surrogateescape"))
    for directory, inner, files in os.walk(folder):
        inner.sort()
        for name in sorted(files):
            try:
                about = os.stat(os.path.join(directory, name))
            except OSError:
                continue
            checksum.update(f"{os.path.join(directory, name)!r} {about.st_size} {about.st_mtime_ns}".encode())
    return checksum.hexdigest()
