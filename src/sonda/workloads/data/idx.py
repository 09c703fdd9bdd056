"""MNIST's and Fashion-MNIST's files (IDX), compressed by gzip or not, as the user has them.

The format (Y. LeCun, "The MNIST database"): two zero bytes, the type of a value (8 is an unsigned byte), the number of
axes, then each axis's length as 4 bytes, most significant first, then the values.
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np

from sonda.record.errors import SondaError
from sonda.workloads.data.source import ArraySource

PARTS = (("train", "train"), ("test", "t10k"))
"""A part, and the prefix of its files."""
BYTES = 8
MOST_BYTES = 1 << 33
FASHION = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
"""Fashion-MNIST's classes (https://github.com/zalandoresearch/fashion-mnist); its files hold numbers only."""


def has_idx(folder: Path) -> bool:
    return any(_find_file(folder, begin, "images", 3) is not None for _, begin in PARTS)


def read_idx_folder(folder: Path) -> ArraySource:
    """The parts found in the folder, training first. Raises SondaError where a file is missing or broken."""
    parts: list[tuple[str, int]] = []
    images: list[np.ndarray] = []
    labels: list[np.ndarray] = []
    for part, begin in PARTS:
        file = _find_file(folder, begin, "images", 3)
        if file is None:
            continue
        label_file = _find_file(folder, begin, "labels", 1)
        if label_file is None:
            raise SondaError(f"{folder} has {file.name} but no {begin}-labels-idx1-ubyte", "put it beside the images")
        pictures, numbers = read_idx(file), read_idx(label_file)
        if pictures.ndim != 3 or numbers.ndim != 1 or len(pictures) != len(numbers) or not pictures.size:
            raise SondaError(
                f"{file.name} is {_times(pictures.shape)} and {label_file.name} {_times(numbers.shape)}: they do not "
                "belong together",
                "take both from the same archive",
            )
        if images and pictures.shape[1:] != images[0].shape[1:3]:
            raise SondaError(f"{file.name} has images of another size than those before", "take both from one archive")
        parts.append((part, len(pictures)))
        images.append(pictures[..., None])
        labels.append(numbers.astype(np.int64))
    if not parts:
        raise SondaError(f"{folder} has no train-images-idx3-ubyte", "give the folder with MNIST's files")
    all_labels = np.concatenate(labels)
    count = int(all_labels.max()) + 1
    classes = FASHION if "fashion" in folder.resolve().name.lower() and count <= 10 else tuple(map(str, range(count)))
    return ArraySource(
        layout="idx", name=folder.resolve().name, classes=classes, labels=all_labels, parts=tuple(parts), images=images
    )


def read_idx(path: Path) -> np.ndarray:
    """The array of an IDX file of unsigned bytes, memory-mapped unless compressed. Raises SondaError."""
    try:
        packed = path.suffix == ".gz"
        with gzip.open(path) if packed else open(path, "rb") as file:
            beginning = file.read(4)
            if len(beginning) < 4 or beginning[:2] != b"\0\0" or beginning[2] != BYTES or not 1 <= beginning[3] <= 4:
                raise ValueError("it does not begin like an IDX file of unsigned bytes")
            axes = beginning[3]
            lengths = file.read(4 * axes)
            if len(lengths) < 4 * axes:
                raise ValueError("it is cut within its header")
            shape = struct.unpack(f">{axes}I", lengths)
            count = math.prod(shape)
            if count > MOST_BYTES:
                raise ValueError(f"its header speaks of {count:,} values")
            if packed:
                values = np.frombuffer(file.read(count + 1), np.uint8)
                present = len(values)
            else:
                present = path.stat().st_size - 4 - 4 * axes
        if present != count:
            raise ValueError(
                f"its header speaks of {count:,} values, and there are {'more' if present > count else present}"
            )
        if packed:
            return values.reshape(shape)
        if not count:
            return np.zeros(shape, np.uint8)
        return np.memmap(path, np.uint8, "r", 4 + 4 * axes, shape)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise SondaError(f"cannot read {path}: {reason}", "take it from its archive again") from None


def _find_file(folder: Path, begin: str, content: str, axes: int) -> Path | None:
    """The file of images or labels; None where there is none. Archives differ in one character, and in compression."""
    for dot in "-.":
        for end in ("", ".gz"):
            path = folder / f"{begin}-{content}{dot}idx{axes}-ubyte{end}"
            if path.is_file():
                return path
    return None


def _times(shape: tuple[int, ...]) -> str:
    return " x ".join(f"{length:,}" for length in shape)
