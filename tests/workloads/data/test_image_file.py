"""Image files become arrays whatever their kind, and broken ones are refused with a reason."""

from __future__ import annotations

import struct
import tempfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from data_examples import CHANNELS, chunk, png
from sonda.workloads.data.image_file import BadImageError, image_size, read_image

DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
"""Of PNG, by colour type: https://www.w3.org/TR/png-3/#table111."""
KINDS = [(colour, depth) for colour, depths in DEPTHS.items() for depth in depths]


def read_content(content: bytes, suffix: str = ".png") -> np.ndarray:
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / f"x{suffix}"
        path.write_bytes(content)
        return read_image(path)


@st.composite
def images(draw: st.DrawFn) -> tuple[np.ndarray, int, int, list[int], bool]:
    colour, depth = draw(st.sampled_from(KINDS))
    height, width = draw(st.integers(1, 12)), draw(st.integers(1, 12))
    seed = draw(st.integers(0, 2**32))
    values = np.random.default_rng(seed).integers(0, 1 << depth, (height, width, CHANNELS[colour]))
    return values, colour, depth, draw(st.lists(st.integers(0, 4), min_size=1, max_size=5)), draw(st.booleans())


@settings(max_examples=150, deadline=None)
@given(images())
def test_every_kind_of_png_comes_back(made: tuple[np.ndarray, int, int, list[int], bool]) -> None:
    """Lower depths are stretched to 0..255; of 16 bits, grey keeps all and colours their higher byte. Pillow gives grey
    of 16 bits with alpha as RGBA."""
    values, colour, depth, filters, interlaced = made
    palette = np.random.default_rng(0).integers(0, 256, (1 << depth, 3)).astype(np.uint8) if colour == 3 else None
    extra = b"" if palette is None else chunk(b"PLTE", palette.tobytes())
    pixels = read_content(png(values, colour, depth, filters, interlaced, extra))
    if palette is not None:
        expected = palette[values[..., 0]]
    elif depth < 8:
        expected = values * (255 // ((1 << depth) - 1))
    else:
        expected = values >> 8 if depth == 16 and colour else values
    if (colour, depth) == (4, 16):
        expected = expected[..., [0, 0, 0, 1]]
    assert pixels.dtype == (np.uint16 if depth == 16 and not colour else np.uint8)
    assert np.array_equal(pixels, expected)


def test_transparent_colours_become_alpha() -> None:
    grey = png(np.array([[[10], [20]]]), 0, 8, [0], extra=chunk(b"tRNS", struct.pack(">H", 20)))
    assert read_content(grey).tolist() == [[[10, 255], [20, 0]]]
    extra = chunk(b"PLTE", bytes([1, 2, 3, 4, 5, 6])) + chunk(b"tRNS", b"\x80")
    assert read_content(png(np.array([[[0], [1]]]), 3, 8, [0], extra=extra)).tolist() == [
        [[1, 2, 3, 128], [4, 5, 6, 255]]
    ]


def test_a_cut_file_is_refused_wherever_its_pixels_are_cut() -> None:
    content = png(np.arange(48).reshape(4, 4, 3), 2, 8, [0, 1, 2, 3, 4])
    for length in range(len(content) - len(chunk(b"IEND", b""))):
        with pytest.raises(BadImageError):
            read_content(content[:length])


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**9), st.integers(1, 255))
def test_a_changed_byte_of_the_pixels_is_noticed(at: int, change: int) -> None:
    content = bytearray(png(np.arange(48).reshape(4, 4, 3), 2, 8, [0, 4]))
    first, last = content.index(b"IDAT"), content.index(b"IEND") - 4
    content[first + at % (last - first)] ^= change
    with pytest.raises(BadImageError):
        read_content(bytes(content))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=64), st.sampled_from([b"IHDR", b"IDAT", b"PLTE"]))
def test_any_content_with_right_checksums_is_read_or_refused(body: bytes, name: bytes) -> None:
    parts = {
        b"IHDR": struct.pack(">IIBBBBB", 3, 3, 8, 3, 0, 0, 0),
        b"PLTE": bytes(9),
        b"IDAT": zlib.compress(bytes(12)),
    }
    parts[name] = body
    content = b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts.items()) + chunk(b"IEND", b"")
    try:
        pixels = read_content(content)
    except BadImageError:
        return
    assert pixels.shape[:2] == (3, 3) or name == b"IHDR"


def test_a_header_cannot_ask_for_all_memory() -> None:
    header = struct.pack(">IIBBBBB", 2**31 - 1, 2**31 - 1, 16, 6, 0, 0, 0)
    with pytest.raises(BadImageError):
        read_content(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IEND", b""))


def test_portable_maps(tmp_path: Path) -> None:
    grey, colour, deep = tmp_path / "a.pgm", tmp_path / "b.ppm", tmp_path / "c.pgm"
    grey.write_bytes(b"P5\n# a comment\n3 2\n100\n" + bytes([0, 50, 100, 25, 75, 100]))
    colour.write_bytes(b"P6 1 2 255\n" + bytes(range(6)))
    deep.write_bytes(b"P5 2 1 65535\n" + struct.pack(">HH", 258, 65535))
    # 50 of 100 is 127.5 of 255, rounded up; 25: 63.75; 75: 191.25.
    assert read_image(grey)[..., 0].tolist() == [[0, 128, 255], [64, 191, 255]]
    assert read_image(colour).tolist() == [[[0, 1, 2]], [[3, 4, 5]]]
    assert read_image(deep)[..., 0].tolist() == [[258, 65535]]
    assert [image_size(path) for path in (grey, colour, deep)] == [(3, 2), (1, 2), (2, 1)]
    grey.write_bytes(grey.read_bytes()[:-1])
    with pytest.raises(BadImageError):
        read_image(grey)


def test_what_is_no_image_is_refused(tmp_path: Path) -> None:
    for name, content in (("a.png", b""), ("b.jpg", b"text"), ("c.tif", b"II*\0")):
        path = tmp_path / name
        path.write_bytes(content)
        for read in (image_size, read_image):
            with pytest.raises(BadImageError, match=r"."):
                read(path)
    with pytest.raises(BadImageError, match=r"^No such file or directory$"):
        read_image(tmp_path / "missing.png")


def test_values_of_32_bits_are_refused(tmp_path: Path) -> None:
    Image.fromarray(np.ones((3, 4), np.float32)).save(tmp_path / "x.tif")
    with pytest.raises(BadImageError, match="values of 32 bits"):
        read_image(tmp_path / "x.tif")


def test_a_photograph(tmp_path: Path) -> None:
    turned = Image.Exif()
    turned[0x0112] = 6  # the camera was held upright
    colours = np.zeros((16, 32, 3), np.uint8)
    colours[:, 16:] = (250, 20, 20)
    Image.fromarray(colours).save(tmp_path / "x.jpg", quality=95, exif=turned)
    assert image_size(tmp_path / "x.jpg") == (16, 32)
    pixels = read_image(tmp_path / "x.jpg").astype(int)
    assert pixels.shape == (32, 16, 3)
    assert np.abs(pixels[24:] - (250, 20, 20)).max() < 12
    assert pixels[:8].max() < 12
    (tmp_path / "x.jpg").write_bytes((tmp_path / "x.jpg").read_bytes()[:-200])
    with pytest.raises(BadImageError):
        read_image(tmp_path / "x.jpg")
