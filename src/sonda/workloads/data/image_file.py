"""Reads an image file as an array: PNG and binary PGM/PPM itself, other formats by Pillow, where it is installed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from sonda.record.errors import SondaError
from sonda.workloads.data.png import MOST_PIXELS, SIGNATURE, png_size, read_png

SUFFIXES = frozenset(
    (".png", ".pgm", ".ppm", ".pnm", ".jpg", ".jpeg", ".jpe", ".jfif", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".jp2",
     ".avif", ".tga", ".ico")
)  # fmt: skip
"""Suffixes of image files; other files are not read."""
OWN_FORMATS = (SIGNATURE, b"P5", b"P6")
PILLOW_FORMATS = {
    b"\xff\xd8\xff": "JPEG",
    b"BM": "BMP",
    b"GIF8": "GIF",
    b"II*\0": "TIFF",
    b"MM\0*": "TIFF",
    b"RIFF": "WebP",
}
_PNM = re.compile(rb"(P[56])(?:\s|#[^\n]*\n)+(\d{1,9})(?:\s|#[^\n]*\n)+(\d{1,9})(?:\s|#[^\n]*\n)+(\d{1,5})\s")


class BadImageError(Exception):
    """An image that cannot be used; the text says why. It is skipped, and listed in the manifest."""


def image_size(path: Path) -> tuple[int, int]:
    """Width and height in pixels, from the file's beginning. Raises BadImageError."""
    try:
        with open(path, "rb") as file:
            beginning = file.read(1024)
        if beginning.startswith(SIGNATURE):
            return png_size(beginning)
        if beginning.startswith(OWN_FORMATS):
            return _pnm_header(beginning)[:2]
    except (OSError, ValueError) as error:
        raise BadImageError(_reason(error)) from None
    opened = _open_with_pillow(path, beginning)
    return opened.size


def read_image(path: Path) -> np.ndarray:
    """Height x width x channels (1 grey, 2 grey and alpha, 3 RGB, 4 RGB and alpha), uint8 or uint16.

    Raises BadImageError where the file is broken, SondaError where a library is missing to read it.
    """
    try:
        content = path.read_bytes()
        if content.startswith(SIGNATURE):
            return read_png(content)
        if content.startswith(OWN_FORMATS):
            return _read_pnm(content)
    except (OSError, ValueError) as error:
        raise BadImageError(_reason(error)) from None
    opened = _open_with_pillow(path, content[:1024])
    try:
        if opened.mode in ("I;16", "I;16B", "I;16L"):
            return np.asarray(opened, np.uint16)[..., None]
        if opened.mode in ("I", "F"):
            raise ValueError("values of 32 bits, of which nobody knows the white")
        grey = opened.mode in ("1", "L")
        alpha = "A" in opened.mode or "transparency" in opened.info
        return np.asarray(opened.convert("L" if grey else "RGBA" if alpha else "RGB")).reshape(
            opened.height, opened.width, -1
        )
    except Exception as error:  # Pillow raises whatever its decoders do
        raise BadImageError(_reason(error)) from None


def _pnm_header(content: bytes) -> tuple[int, int, int, int, int]:
    """Width, height, largest value, channels, and the offset of the pixels."""
    match = _PNM.match(content)
    if match is None:
        raise ValueError("its header is cut or broken")
    width, height, top = int(match[2]), int(match[3]), int(match[4])
    if not width or not height or width * height > MOST_PIXELS or not 0 < top < 65536:
        raise ValueError(f"a size of {width}x{height} pixels with values to {top}")
    return width, height, top, 1 if match[1] == b"P5" else 3, match.end()


def _read_pnm(content: bytes) -> np.ndarray:
    width, height, top, channels, start = _pnm_header(content)
    kind, full = (np.dtype(">u2"), 65535) if top > 255 else (np.dtype(np.uint8), 255)
    count = width * height * channels
    if len(content) - start < count * kind.itemsize:
        raise ValueError("the file is cut: pixels are missing")
    values = np.frombuffer(content, kind, count, start).reshape(height, width, channels)
    if top != full:
        values = (np.minimum(values, top).astype(np.uint32) * full + top // 2) // top
    return values.astype(np.uint8 if full == 255 else np.uint16)


def _open_with_pillow(path: Path, beginning: bytes) -> Any:
    """The file opened by Pillow, rotated as its EXIF data says; its pixels are not read yet."""
    kind = next((name for magic, name in PILLOW_FORMATS.items() if beginning.startswith(magic)), "")
    try:
        from PIL import Image, ImageOps  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        if not kind:
            raise BadImageError("neither PNG, PGM nor PPM") from None
        raise SondaError(
            f"{path.name} is a {kind} image, and Pillow, which reads these, is not installed", "pip install pillow"
        ) from None
    try:
        return ImageOps.exif_transpose(Image.open(path))
    except Exception as error:  # Pillow raises whatever its decoders do
        raise BadImageError(_reason(error).replace(str(path), path.name)) from None


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
