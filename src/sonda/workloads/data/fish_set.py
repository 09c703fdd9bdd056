"""A data set of drawn fish on disk, in the layout of the photographed ones."""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec

from sonda.record.errors import SondaError
from sonda.record.partial import PARTIAL, abandoned, discard, partial_path
from sonda.record.saying import Say
from sonda.version import VERSION
from sonda.workloads.data.fish_folder import DRAWN_FILE, MASKS
from sonda.workloads.data.fish_kinds import KINDS
from sonda.workloads.data.fish_shapes import HEIGHT, WIDTH, draw_fish
from sonda.workloads.data.png import write_png

SAY_EVERY_S = 0.5
SMALLEST, LARGEST = 16, 4096


def make_fish(
    directory: str | Path,
    *,
    count: int = 1000,
    image: tuple[int, int] = (WIDTH, HEIGHT),
    seed: int = 0,
    say: Say | None = None,
) -> Path:
    """Draw `count` silhouettes of each of nine kinds as `Trout/Trout GT/00001.png`; returns the directory.

    `image` is (width, height) in pixels. The same seed gives the same files. The directory appears when all are drawn;
    raises SondaError where it exists or cannot be written.
    """
    out = Path(directory)
    if not (SMALLEST <= image[0] <= LARGEST and SMALLEST <= image[1] <= LARGEST):
        raise SondaError(f"fish of {image[0]}x{image[1]} pixels", f"give {SMALLEST} to {LARGEST} each, such as 590x445")
    if not 1 <= count <= 99_999:
        raise SondaError(f"{count:,} fish of each kind", "give 1 to 99,999")
    if seed < 0:
        raise SondaError(f"seed {seed} is below 0", "give 0 or more")
    if os.path.lexists(out):
        raise SondaError(f"{out} exists", "give another directory")
    partial = partial_path(out.parent)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        for left in out.parent.glob(f"{PARTIAL}*"):
            if abandoned(left) and (left / DRAWN_FILE).is_file():
                discard(left)
        try:
            partial.mkdir()
            facts = {
                "drawn by": f"sonda {VERSION}",
                "seed": str(seed),
                "count": str(count),
                "image": f"{image[0]}x{image[1]}",
            }
            (partial / DRAWN_FILE).write_bytes(msgspec.json.encode(facts) + b"\n")
            _draw_all(partial, count, image, seed, say)
            partial.rename(out)
        finally:
            discard(partial)
    except OSError as error:
        raise SondaError(
            f"cannot write {out}: {error.strerror or error}", "choose another directory, or free some space"
        ) from None
    return out


def _draw_all(place: Path, count: int, image: tuple[int, int], seed: int, say: Say | None) -> None:
    said = time.monotonic()
    done, total = 0, count * len(KINDS)
    for at, kind in enumerate(KINDS):
        folder = place / kind.name / (kind.name + MASKS)
        folder.mkdir(parents=True)
        for number in range(1, count + 1):
            (folder / f"{number:05d}.png").write_bytes(write_png(draw_fish(at, number, seed, *image)))
            done += 1
            now = time.monotonic()
            if say and now - said > SAY_EVERY_S:
                said = now
                say(f"drew {done:,} of {total:,} fish")
