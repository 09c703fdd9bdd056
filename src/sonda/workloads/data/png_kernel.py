"""The loop of PNG's row filters, compiled: each byte needs its neighbours, so it cannot be one operation on arrays.

PNG specification (third edition), section 9: filters none, sub, up, average, Paeth.
"""

from __future__ import annotations

import numpy as np


def undo_filters(rows: np.ndarray, pixel: int) -> bool:
    """Undo the filters of `rows` (uint8, row x (1 + bytes)) in place; the first byte of each names its filter.

    `pixel` is the distance in bytes to the pixel on the left. Returns False where a filter is none of PNG's.
    """
    count, length = rows.shape
    for row in range(count):
        kind = rows[row, 0]
        if kind > 4:
            return False
        if kind == 0:
            continue
        for at in range(1, length):
            left = np.int32(rows[row, at - pixel]) if at > pixel else np.int32(0)
            above = np.int32(rows[row - 1, at]) if row > 0 else np.int32(0)
            if kind == 1:
                guess = left
            elif kind == 2:
                guess = above
            elif kind == 3:
                guess = (left + above) >> 1
            else:
                corner = np.int32(rows[row - 1, at - pixel]) if row > 0 and at > pixel else np.int32(0)
                to_left = abs(above - corner)
                to_above = abs(left - corner)
                to_corner = abs(left + above - 2 * corner)
                if to_left <= to_above and to_left <= to_corner:
                    guess = left
                elif to_above <= to_corner:
                    guess = above
                else:
                    guess = corner
            rows[row, at] = (np.int32(rows[row, at]) + guess) & 255
    return True
