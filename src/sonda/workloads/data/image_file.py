"""One image file to an array, read by Pillow."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from sonda.record.errors import require_module

SUFFIXES = frozenset(
    (".png", ".pgm", ".ppm", ".pnm", ".jpg", ".jpeg", ".jpe", ".jfif", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".jp2",
     ".avif", ".tga", ".ico")
)  # fmt: skip
"""Files named otherwise are not taken for images."""
SIXTEEN_BITS = ("I;16", "I;16B", "I;16L")


def require_images() -> None:
    """Raise MissingExtraError unless image files can be read and written here."""
    require_module("PIL", "Pillow", "images")


class BadImageError(Exception):
    """This one image cannot be used; the text says why. It is skipped, named and counted."""


def image_size(path: Path) -> tuple[int, int]:
    """Width and height in pixels, as the camera held it, from the file's header. Raises BadImageError."""
    with _refusing(path):
        with _open(path) as image:
            width, height = image.size
            return (height, width) if image.getexif().get(0x0112, 1) > 4 else (width, height)


def read_image(path: Path) -> np.ndarray:
    """Height x width x channels (1 grey, 2 grey and alpha, 3 RGB, 4 RGB and alpha), uint8 or uint16.

    Colours of 16 bits are read as 8; grey ones keep their 16. Raises BadImageError where the file is broken.
    """
    from PIL import ImageOps

    with _refusing(path):
        content = path.read_bytes()
        with _open(io.BytesIO(content)) as image:
            image.verify()  # compares checksums, which reading pixels does not
        with _open(io.BytesIO(content)) as image:
            upright = ImageOps.exif_transpose(image)
            return _pixels(upright, image.format).reshape(upright.height, upright.width, -1)


def _pixels(image: Any, file_format: str) -> np.ndarray:
    if image.mode in SIXTEEN_BITS or (image.mode == "I" and file_format in ("PPM", "PNG")):
        return np.asarray(image).astype(np.uint16)
    if image.mode in ("I", "F"):
        raise ValueError("values of 32 bits, of which nobody knows the white")
    grey = image.mode in ("1", "L", "LA")
    alpha = "A" in image.mode or "transparency" in image.info
    mode = ("LA" if alpha else "L") if grey else ("RGBA" if alpha else "RGB")
    return np.asarray(image.convert(mode))


def _open(file: Path | io.BytesIO) -> Any:
    from PIL import Image

    with warnings.catch_warnings():
        # Pillow warns of large images and refuses very large ones: a header of a few bytes must not ask for all memory.
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        return Image.open(file)


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    """Whatever Pillow's decoders raise becomes a BadImageError with the file's name in place of its path."""
    from PIL import UnidentifiedImageError

    try:
        yield
    except UnidentifiedImageError:
        raise BadImageError("no image that Pillow knows") from None
    except Exception as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise BadImageError(reason.replace(str(path), path.name)) from None
