"""The few tiles of a layer among which a rule chooses."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Whole = NDArray[np.int64]


def few(room: int, most: Whole) -> Whole:
    """Tiles on so many multipliers, rows in the order of Tile's fields; `most` holds the layer's sizes in that order.

    Whole filters, whole rows of one, and parts of a row, with every size that `next_size` gives of channels, filters,
    groups and rows of the output, as far as they fit; one sample and one window of a row at a time.
    """
    tiles = np.empty((64, 8), np.int64)
    count = 0
    part = 0
    # First whole filters, then whole rows, then parts of a row; none twice.
    kind = 0
    while kind < 3:
        height, width = most[0], most[1]
        if kind == 0:
            kind = 1
        elif kind == 1:
            kind = 2
            if height == 1:
                continue
            height = 1
        else:
            part = next_size(part, min(most[1], room))
            if part == 0:
                break
            if part == most[1]:
                continue
            height, width = 1, part
        area = height * width
        channels = 0
        while True:
            channels = next_size(channels, min(most[2], room // area))
            if channels == 0:
                break
            size = area * channels
            filters = 0
            while True:
                filters = next_size(filters, min(most[3], room // size))
                if filters == 0:
                    break
                groups = 0
                while True:
                    groups = next_size(groups, min(most[4], room // (size * filters)))
                    if groups == 0:
                        break
                    rows = 0
                    while True:
                        rows = next_size(rows, min(most[6], room // (size * filters * groups)))
                        if rows == 0:
                            break
                        if count == len(tiles):
                            tiles = np.concatenate((tiles, tiles))
                        tile = tiles[count]
                        tile[0], tile[1], tile[2], tile[3] = height, width, channels, filters
                        tile[4], tile[5], tile[6], tile[7] = groups, 1, rows, 1
                        count += 1
    return tiles[:count].copy()


def next_size(size: int, most: int) -> int:
    """The next power of two after this one as far as it fits, then the most, then 0."""
    if size == most:
        return 0
    return min(max(1, 2 * size), most)
