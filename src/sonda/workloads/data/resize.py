"""Resizes images and converts their colours, to float32 in [0, 1], with the same bits on every machine.

Shrinking averages under a triangle as wide as two output pixels; enlarging interpolates linearly. This is Pillow's
BILINEAR, and PyTorch's `interpolate(mode="bilinear", antialias=True)`. Sums run tap by tap in a fixed order, so that no
matrix library decides about the last bit.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

GREY = (0.299, 0.587, 0.114)
"""Weights of red, green and blue in brightness (ITU-R BT.601), as in Pillow's mode L."""


def to_unit(images: np.ndarray, channels: int) -> np.ndarray:
    """Images x height x width x (1, 2, 3 or 4) of uint8 or uint16 to images x channels x height x width in [0, 1].

    `channels` is 1 (grey) or 3 (RGB). Transparent pixels are blended with black.
    """
    top = np.float32(65535 if images.dtype == np.uint16 else 255)
    planes = np.moveaxis(images, 3, 1).astype(np.float32) / top
    if planes.shape[1] in (2, 4):
        planes = planes[:, :-1] * planes[:, -1:]
    if planes.shape[1] == 3 and channels == 1:
        red, green, blue = (np.float32(weight) for weight in GREY)
        planes = (planes[:, 0] * red + planes[:, 1] * green + planes[:, 2] * blue)[:, None]
    elif planes.shape[1] == 1 and channels == 3:
        planes = np.repeat(planes, 3, axis=1)
    return planes


def resize(planes: np.ndarray, width: int, height: int) -> np.ndarray:
    """Resize the last two axes (height, width) of float32 planes; values stay within [0, 1]."""
    if planes.shape[-2] != height:
        planes = _resize_rows(planes, height)
    if planes.shape[-1] != width:
        # Gathering whole rows is faster than gathering single values, so columns are made rows.
        planes = np.swapaxes(_resize_rows(np.ascontiguousarray(np.swapaxes(planes, -1, -2)), width), -1, -2)
    return np.clip(planes, 0, 1)


def _resize_rows(planes: np.ndarray, count: int) -> np.ndarray:
    first, weights = _taps(planes.shape[-2], count)
    result = np.take(planes, first, axis=-2) * weights[0][:, None]
    last = planes.shape[-2] - 1
    for number in range(1, len(weights)):
        result += np.take(planes, np.minimum(first + number, last), axis=-2) * weights[number][:, None]
    return result


@lru_cache(maxsize=64)
def _taps(before: int, after: int) -> tuple[np.ndarray, np.ndarray]:
    """The first input row of every output row, and the weights of that row and the following (taps x rows)."""
    scale = before / after
    reach = max(scale, 1.0)
    centre = (np.arange(after) + 0.5) * scale
    first = np.clip(np.floor(centre - reach).astype(np.int64), 0, before - 1)
    taps = np.arange(int(np.ceil(2 * reach)) + 2)
    at = first + taps[:, None]
    weights = np.maximum(0.0, 1.0 - np.abs(at + 0.5 - centre) / reach) * (at < before)
    weights = weights[: int(np.flatnonzero(weights.any(axis=1))[-1]) + 1]
    return first, (weights / weights.sum(axis=0)).astype(np.float32)
