"""PNG images, read and written with zlib and NumPy: every colour type, depth and interlacing of the specification.

https://www.w3.org/TR/png-3/. Sonda has its own reader because silhouettes and screenshots come as PNG, and it installs
no image library.
"""

from __future__ import annotations

import struct
import zlib

import numpy as np

SIGNATURE = b"\x89PNG\r\n\x1a\n"
MOST_PIXELS = 1 << 28
"""Images with more pixels are refused: a broken header must not make the reader allocate all memory."""
CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
"""Values of a pixel by colour type: grey, RGB, palette, grey and alpha, RGB and alpha."""
DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
ADAM7 = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))
"""First row, first column, step of rows, step of columns of the seven passes of an interlaced image."""


def png_size(beginning: bytes) -> tuple[int, int]:
    """Width and height in pixels, from the first 24 bytes of a file. Raises ValueError where it is no PNG."""
    if len(beginning) < 24 or beginning[:8] != SIGNATURE or beginning[12:16] != b"IHDR":
        raise ValueError("not a PNG file, or its header is cut")
    width, height = struct.unpack(">II", beginning[16:24])
    if not 0 < width < 1 << 31 or not 0 < height < 1 << 31 or width * height > MOST_PIXELS:
        raise ValueError(f"a size of {width}x{height} pixels")
    return width, height


def read_png(content: bytes) -> np.ndarray:
    """Height x width x channels, uint8 or uint16; 1 grey, 2 grey and alpha, 3 RGB, 4 RGB and alpha.

    Palettes are resolved, and depths below 8 scaled to 0..255. Raises ValueError that says what is broken.
    """
    width, height = png_size(content)
    chunks = _chunks(content)
    header = chunks["IHDR"]
    if len(header) != 13:
        raise ValueError("the header has a wrong length")
    depth, colour, compression, filtering, interlaced = header[8:]
    if depth not in DEPTHS.get(colour, ()) or compression or filtering or interlaced > 1:
        raise ValueError(f"no PNG has colour type {colour} with depth {depth}, or its header is broken")
    channels = CHANNELS[colour]
    passes = ADAM7 if interlaced else ((0, 0, 1, 1),)
    shapes = [(len(range(top, height, down)), len(range(left, width, right))) for top, left, down, right in passes]
    lengths = [rows * (1 + (columns * channels * depth + 7) // 8) if columns else 0 for rows, columns in shapes]
    raw = _inflate(chunks.get("IDAT", b""), sum(lengths))
    values = np.empty((height, width, channels), np.uint16 if depth == 16 else np.uint8)
    start = 0
    for (top, left, down, right), (rows, columns), length in zip(passes, shapes, lengths, strict=True):
        if length:
            part = raw[start : start + length].reshape(rows, length // rows)
            values[top::down, left::right] = _pixels(part, columns, channels, depth)
            start += length
    return _resolve_colours(values, colour, depth, chunks)


def write_png(image: np.ndarray) -> bytes:
    """A PNG file of a bool image (1 bit, True is white) or of a uint8 one (grey, or RGB with 3 channels)."""
    height, width = image.shape[:2]
    if image.dtype == np.bool_:
        depth, colour, packed = 1, 0, np.packbits(image, axis=1)
    else:
        depth, colour, packed = 8, 2 if image.ndim == 3 else 0, image.reshape(height, -1)
    rows = np.zeros((height, 1 + packed.shape[1]), np.uint8)
    rows[:, 1:] = packed
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return SIGNATURE + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 6)), (b"IEND", b""))
    )


def _chunks(content: bytes) -> dict[str, bytes]:
    """The bodies of the chunks by name, with those of IDAT joined. Raises ValueError for a wrong checksum."""
    bodies: dict[str, bytes] = {}
    pieces = []
    at = len(SIGNATURE)
    while at + 12 <= len(content):
        length = struct.unpack(">I", content[at : at + 4])[0]
        name, body = content[at + 4 : at + 8], content[at + 8 : at + 8 + length]
        check = content[at + 8 + length : at + 12 + length]
        if len(check) < 4:
            break
        if struct.unpack(">I", check)[0] != zlib.crc32(name + body):
            raise ValueError(f"the checksum of chunk {name.decode('ascii', 'replace')} is wrong")
        if name == b"IDAT":
            pieces.append(body)
        elif name == b"IEND":
            return {**bodies, "IDAT": b"".join(pieces)}
        bodies.setdefault(name.decode("ascii", "replace"), body)
        at += 12 + length
    raise ValueError("the file is cut: its end is missing")


def _inflate(packed: bytes, length: int) -> np.ndarray:
    # Limited to one byte more than the image has, so that a stream that unpacks to more costs no memory.
    try:
        raw = zlib.decompressobj().decompress(packed, length + 1)
    except zlib.error as error:
        raise ValueError(f"its pixels cannot be unpacked ({error})") from None
    if len(raw) < length:
        raise ValueError(f"it holds {len(raw):,} bytes of pixels where its size needs {length:,}")
    return np.frombuffer(raw, np.uint8, length)


def _pixels(part: np.ndarray, columns: int, channels: int, depth: int) -> np.ndarray:
    """The rows of the file as rows x columns x channels of plain numbers."""
    if part[:, 0].any():
        from sonda.record.jit import compiled

        part = part.copy()
        if not compiled(undo_filters)(part, max(1, channels * depth // 8)):
            raise ValueError("a row names a filter that PNG does not have")
    part = part[:, 1:]
    if depth == 16:
        return np.ascontiguousarray(part).view(">u2").reshape(len(part), columns, channels)
    if depth < 8:
        bits = np.unpackbits(part, axis=1)
        part = bits[:, ::depth].copy()
        for place in range(1, depth):
            part = 2 * part + bits[:, place::depth]
    return part[:, : columns * channels].reshape(len(part), columns, channels)


def _resolve_colours(values: np.ndarray, colour: int, depth: int, chunks: dict[str, bytes]) -> np.ndarray:
    """Resolve the palette, the transparent colour and depths below 8."""
    clear = np.frombuffer(chunks.get("tRNS", b""), np.uint8)
    if colour == 3:
        palette = np.frombuffer(chunks.get("PLTE", b""), np.uint8)
        if not len(palette) or len(palette) % 3 or int(values.max()) >= len(palette) // 3:
            raise ValueError("its palette is missing or too short")
        colours = palette.reshape(-1, 3)
        if len(clear):
            alpha = np.full((len(colours), 1), 255, np.uint8)
            alpha[: len(clear), 0] = clear[: len(colours)]
            colours = np.hstack([colours, alpha])
        return colours[values[..., 0]]
    key = clear.view(">u2") if colour in (0, 2) and len(clear) == 2 * CHANNELS[colour] else None
    top = 65535 if depth == 16 else 255
    opaque = None if key is None else (values != key).any(axis=2, keepdims=True) * top
    if depth < 8:
        values = values * np.uint8(255 // ((1 << depth) - 1))
    return values if opaque is None else np.concatenate([values, opaque.astype(values.dtype)], axis=2)


# ---- PNG's row filters, compiled: each byte needs its neighbours, so NumPy cannot undo them in one operation ---------


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
