"""PNG files are read as the specification says, and broken ones are refused with a reason."""

from __future__ import annotations

import base64
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_examples import CHANNELS, chunk, png
from sonda.record.jit import compiled
from sonda.workloads.data.image_file import BadImageError, image_size, read_image
from sonda.workloads.data.png import DEPTHS, png_size, read_png, undo_filters, write_png

KINDS = [(colour, depth) for colour, depths in DEPTHS.items() for depth in depths]


@st.composite
def images(draw: st.DrawFn) -> tuple[np.ndarray, int, int, list[int], bool]:
    colour, depth = draw(st.sampled_from(KINDS))
    height, width = draw(st.integers(1, 12)), draw(st.integers(1, 12))
    seed = draw(st.integers(0, 2**32))
    values = np.random.default_rng(seed).integers(0, 1 << depth, (height, width, CHANNELS[colour]))
    return values, colour, depth, draw(st.lists(st.integers(0, 4), min_size=1, max_size=5)), draw(st.booleans())


@settings(max_examples=150, deadline=None)
@given(images())
def test_every_kind_of_image_comes_back(made: tuple[np.ndarray, int, int, list[int], bool]) -> None:
    values, colour, depth, filters, interlaced = made
    palette = np.random.default_rng(0).integers(0, 256, (1 << depth, 3)).astype(np.uint8) if colour == 3 else None
    extra = b"" if palette is None else chunk(b"PLTE", palette.tobytes())
    content = png(values, colour, depth, filters, interlaced, extra)
    assert png_size(content) == (values.shape[1], values.shape[0])
    found = read_png(content)
    if palette is not None:
        expected = palette[values[..., 0]]
    else:
        expected = values * (255 // ((1 << depth) - 1)) if depth < 8 else values
    assert found.dtype == (np.uint16 if depth == 16 else np.uint8)
    assert np.array_equal(found, expected)


def test_the_compiled_filters_are_the_plain_ones() -> None:
    rows = np.random.default_rng(1).integers(0, 256, (20, 25)).astype(np.uint8)
    rows[:, 0] %= 5
    plain, fast = rows.copy(), rows.copy()
    with np.errstate(over="ignore"):
        assert undo_filters(plain, 3)
    assert compiled(undo_filters)(fast, 3)
    assert np.array_equal(plain, fast)
    rows[3, 0] = 5
    assert not compiled(undo_filters)(rows, 3)


def test_a_file_of_another_program() -> None:
    # Pillow's, of the grey ramp 0, 40, 80, 120 over 10, 50, 90, 130, saved with optimize=True.
    ramp = base64.b64decode(
        "iVBORw0KGgoAAAANSUhEUgAAAAQAAAACCAAAAABawyK/AAAAEklEQVR42mNk0NDQYOLi4uICAAPKAKRo/x34AAAAAElFTkSuQmCC"
    )
    assert read_png(ramp)[..., 0].tolist() == [[0, 40, 80, 120], [10, 50, 90, 130]]


def test_transparent_colours_become_alpha() -> None:
    values = np.array([[[10], [20]]])
    assert read_png(png(values, 0, 8, [0], extra=chunk(b"tRNS", struct.pack(">H", 20)))).tolist() == [
        [[10, 255], [20, 0]]
    ]
    extra = chunk(b"PLTE", bytes([1, 2, 3, 4, 5, 6])) + chunk(b"tRNS", b"\x80")
    assert read_png(png(np.array([[[0], [1]]]), 3, 8, [0], extra=extra)).tolist() == [[[1, 2, 3, 128], [4, 5, 6, 255]]]


@pytest.mark.parametrize("shape", [(5, 11), (5, 11, 3)], ids=["grey", "rgb"])
def test_what_is_written_is_read(shape: tuple[int, ...]) -> None:
    image = np.random.default_rng(2).integers(0, 256, shape).astype(np.uint8)
    assert np.array_equal(read_png(write_png(image)).reshape(shape), image)
    if len(shape) == 2:
        assert np.array_equal(read_png(write_png(image > 99))[..., 0], np.where(image > 99, 255, 0))


def test_a_cut_file_is_refused_wherever_it_is_cut() -> None:
    content = png(np.arange(48).reshape(4, 4, 3), 2, 8, [0, 1, 2, 3, 4])
    for length in range(len(content)):
        with pytest.raises(ValueError):
            read_png(content[:length])


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**9), st.integers(1, 255))
def test_a_changed_byte_is_noticed(at: int, change: int) -> None:
    content = bytearray(png(np.arange(48).reshape(4, 4, 3), 2, 8, [0, 4]))
    content[at % len(content)] ^= change
    with pytest.raises(ValueError):
        read_png(bytes(content))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=64), st.sampled_from([b"IHDR", b"IDAT", b"PLTE"]))
def test_any_content_with_right_checksums_is_read_or_refused(body: bytes, name: bytes) -> None:
    parts = {
        b"IHDR": struct.pack(">IIBBBBB", 3, 3, 8, 3, 0, 0, 0),
        b"PLTE": bytes(9),
        b"IDAT": zlib.compress(bytes(12)),
    }
    parts[name] = body
    content = b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*one) for one in parts.items()) + chunk(b"IEND", b"")
    readable = name == b"PLTE" and body and len(body) % 3 == 0
    if readable:
        assert read_png(content).tolist() == [[list(body[:3])] * 3] * 3
    else:
        with pytest.raises(ValueError):
            read_png(content)


def test_a_header_cannot_ask_for_all_memory() -> None:
    header = struct.pack(">IIBBBBB", 2**31 - 1, 2**31 - 1, 16, 6, 0, 0, 0)
    with pytest.raises(ValueError, match="2147483647x2147483647"):
        read_png(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IEND", b""))


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
    with pytest.raises(BadImageError, match="cut"):
        read_image(grey)
