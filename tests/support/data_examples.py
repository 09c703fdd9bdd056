"""Images of the tests: PNG files encoded after the specification, independently of the reader, and folders of them."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
PASSES = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
"""Adam7 as the specification prints it: first column, first row, step of columns, step of rows."""


def chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def paeth(left: int, above: int, corner: int) -> int:
    guess = left + above - corner
    return min((left, above, corner), key=lambda one: abs(guess - one))


def filtered(row: bytes, above: bytes, kind: int, step: int) -> bytes:
    """One row under one of the five filters, byte by byte."""
    result = bytearray([kind])
    for at, value in enumerate(row):
        left, corner = (row[at - step], above[at - step]) if at >= step else (0, 0)
        guess = (0, left, above[at], (left + above[at]) // 2, paeth(left, above[at], corner))[kind]
        result.append((value - guess) % 256)
    return bytes(result)


def packed(row: np.ndarray, depth: int) -> bytes:
    """Values of a row, most significant bits first, the last byte filled up with zeros."""
    bits = "".join(f"{int(value):0{depth}b}" for value in row.reshape(-1))
    bits += "0" * (-len(bits) % 8)
    return bytes(int(bits[at : at + 8], 2) for at in range(0, len(bits), 8))


def png(
    values: np.ndarray, colour: int, depth: int, filters: Sequence[int], interlaced: bool = False, extra: bytes = b""
) -> bytes:
    """A PNG file of height x width x channels of plain numbers; `filters` are taken in turn, row by row."""
    height, width, channels = values.shape
    step = max(1, channels * depth // 8)
    raw, turn = b"", 0
    for left, top, right, down in PASSES if interlaced else ((0, 0, 1, 1),):
        part = values[top::down, left::right]
        if not part.size:
            continue
        above = bytes(len(packed(part[0], depth)))
        for row in part:
            now = packed(row, depth)
            raw += filtered(now, above, filters[turn % len(filters)], step)
            above, turn = now, turn + 1
    body = zlib.compress(raw)
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, int(interlaced))
    middle = len(body) // 2
    return b"".join(
        [b"\x89PNG\r\n\x1a\n", chunk(b"IHDR", header), chunk(b"tEXt", b"Comment\0made by hand"), extra,
         chunk(b"IDAT", body[:middle]), chunk(b"IDAT", body[middle:]), chunk(b"IEND", b"")]
    )  # fmt: skip


def grey_png(level: int, width: int = 8, height: int = 6) -> bytes:
    return png(np.full((height, width, 1), level), 0, 8, [0])


def write_folder(root: Path, classes: dict[str, Sequence[int]], width: int = 8, height: int = 6) -> Path:
    """A directory per class, with one flat grey image for each level."""
    for name, levels in classes.items():
        (root / name).mkdir(parents=True)
        for number, level in enumerate(levels):
            (root / name / f"{number:03d}.png").write_bytes(grey_png(level, width, height))
    return root
