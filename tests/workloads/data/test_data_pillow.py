"""Images that Pillow reads: with the real one where it is installed, and with a stand-in everywhere."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sonda.workloads.data.image_file import BadImageError, image_size, read_image


class Opened:
    """What `Image.open` returns, as far as it is used: 4 x 3 pixels."""

    size, width, height = (4, 3), 4, 3

    def __init__(self, mode: str, **info: object) -> None:
        self.mode, self.info = mode, info
        self.asked = ""

    def convert(self, mode: str) -> np.ndarray:
        self.asked = mode
        return np.zeros((3, 4) if mode == "L" else (3, 4, len(mode)), np.uint8)


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Makes Pillow open the file it returns as whatever is set to be `opened`."""
    pillow, state = ModuleType("PIL"), SimpleNamespace(opened=None, path=tmp_path / "x.jpg")
    state.path.write_bytes(b"\xff\xd8\xff")

    def open_file(path: Path) -> Opened:
        if state.opened is None:
            raise OSError(f"cannot identify image file {path}")
        return state.opened

    pillow.Image = SimpleNamespace(open=open_file)  # type: ignore[attr-defined]
    pillow.ImageOps = SimpleNamespace(exif_transpose=lambda image: image)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "PIL", pillow)
    return state


@pytest.mark.parametrize(
    ("opened", "asked", "channels"),
    [
        (Opened("L"), "L", 1),
        (Opened("1"), "L", 1),
        (Opened("RGB"), "RGB", 3),
        (Opened("CMYK"), "RGB", 3),
        (Opened("P"), "RGB", 3),
        (Opened("P", transparency=3), "RGBA", 4),
        (Opened("LA"), "RGBA", 4),
    ],
    ids=lambda one: one.mode if isinstance(one, Opened) else "",
)
def test_modes(stand_in: Any, opened: Opened, asked: str, channels: int) -> None:
    stand_in.opened = opened
    assert image_size(stand_in.path) == (4, 3)
    assert read_image(stand_in.path).shape == (3, 4, channels)
    assert opened.asked == asked


def test_what_pillow_cannot_read_is_named(stand_in: Any) -> None:
    with pytest.raises(BadImageError, match=r"^cannot identify image file x.jpg$"):
        image_size(stand_in.path)
    stand_in.opened = Opened("F")
    with pytest.raises(BadImageError, match="values of 32 bits"):
        read_image(stand_in.path)


def test_a_photograph(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    turned = image.Exif()
    turned[0x0112] = 6  # the camera was held upright
    colours = np.zeros((16, 32, 3), np.uint8)
    colours[:, 16:] = (250, 20, 20)
    image.fromarray(colours).save(tmp_path / "x.jpg", quality=95, exif=turned)
    assert image_size(tmp_path / "x.jpg") == (16, 32)
    read = read_image(tmp_path / "x.jpg").astype(int)
    assert read.shape == (32, 16, 3)
    assert np.abs(read[24:] - (250, 20, 20)).max() < 12
    assert read[:8].max() < 12
    (tmp_path / "x.jpg").write_bytes((tmp_path / "x.jpg").read_bytes()[:-200])
    with pytest.raises(BadImageError):
        read_image(tmp_path / "x.jpg")
