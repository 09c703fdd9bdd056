"""The picture on the first page of the documentation: the top of a real page of Sonda, opened in Chromium.

`python tools/first_look.py` writes docs/first-look.png from a run of tests/corpus: a ResNet-18 trained on an H200.
Run it again after a change of the page.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

import sonda

REPOSITORY = Path(__file__).resolve().parents[1]
RUN = REPOSITORY / "tests" / "corpus" / "runs" / "20261116T215307719-46fbcef8f73f"
PICTURE = REPOSITORY / "docs" / "first-look.png"
WIDTH, HEIGHT = 1280, 800
COLOURS = 128
MOST_BYTES = 150_000


def draw_picture(picture: Path) -> None:
    """Write the top of the run's page as a PNG. Raises SystemExit without Chromium, or if the picture is too large."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        raise SystemExit("needs Chromium on PATH")
    with tempfile.TemporaryDirectory() as place:
        page = sonda.load(str(RUN), store=place).report(Path(place) / "page.html")
        command = [
            chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
            "--force-color-profile=srgb", f"--window-size={WIDTH},{HEIGHT}",
            "--virtual-time-budget=10000", f"--screenshot={picture}", page.as_uri(),
        ]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True, timeout=120)
    Image.open(picture).convert("RGB").quantize(COLOURS).save(picture, optimize=True)
    if (size := picture.stat().st_size) >= MOST_BYTES:
        raise SystemExit(f"{picture} has {size} bytes, more than {MOST_BYTES}: make the window smaller")


if __name__ == "__main__":
    draw_picture(Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE)
