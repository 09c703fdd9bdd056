"""Draws silhouettes of fish from proportions, so that training needs no data set from elsewhere.

Every image has its own seed (seed, kind, number): image 7 of a kind is the same fish for any number of images and, in
finer or coarser pixels, for any size.
"""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np

from sonda.record.errors import SondaError
from sonda.record.files.partial import PARTIAL, discard, is_abandoned, partial_path
from sonda.record.progress import Say
from sonda.version import VERSION
from sonda.workloads.data.fish_folder import DRAWN_FILE, MASKS
from sonda.workloads.data.image_file import require_images
from sonda.workloads.data.source import ImageSource

# ---- Nine kinds of fish as proportions; lengths are relative to the length of the fish -------------------------------


@dataclass(frozen=True)
class Fin:
    """A fin on the back or belly: its begin and end along the body, its height, and where its peak is (0 to 1)."""

    begin: float
    end: float
    height: float
    peak: float = 0.3


@dataclass(frozen=True)
class Kind:
    name: str
    depth: float
    """Greatest height of the body."""
    deepest: float
    """Where along the body that is."""
    back: float
    """Share of the depth above the line from nose to tail."""
    snout: float
    """Exponent of the outline before its deepest place: small is blunt, large is pointed."""
    stalk: float
    """Height of the body where the tail fin begins."""
    tail: float
    """Length of the tail fin."""
    span: float
    """Height of the tail fin at its end."""
    fork: float
    """Share of the tail fin's length that is cut out in the middle; below 0 the fin is rounded outwards."""
    dorsal: tuple[Fin, ...]
    ventral: tuple[Fin, ...]
    whisker: float = 0.0
    """Length of the thread under the chin."""
    curl: float = 0.0
    """Bend of the body that all fish of the kind have."""
    legs: int = 0
    """Number of legs, drawn as teeth along the belly."""


KINDS = (
    Kind("Black Sea Sprat", 0.20, 0.42, 0.42, 0.75, 0.060, 0.17, 0.21, 0.72,
         (Fin(0.46, 0.58, 0.060, 0.2),), (Fin(0.66, 0.80, 0.030), Fin(0.48, 0.54, 0.040))),
    Kind("Gilt-Head Bream", 0.38, 0.36, 0.60, 0.52, 0.085, 0.19, 0.31, 0.52,
         (Fin(0.30, 0.76, 0.070, 0.25),), (Fin(0.58, 0.76, 0.055), Fin(0.36, 0.46, 0.060))),
    Kind("Hourse Mackerel", 0.24, 0.38, 0.50, 0.66, 0.034, 0.17, 0.26, 0.62,
         (Fin(0.30, 0.42, 0.085, 0.35), Fin(0.45, 0.80, 0.055, 0.1)), (Fin(0.52, 0.80, 0.050, 0.1),)),
    Kind("Red Mullet", 0.26, 0.30, 0.58, 0.48, 0.070, 0.18, 0.25, 0.52,
         (Fin(0.30, 0.44, 0.095, 0.3), Fin(0.56, 0.68, 0.060, 0.2)),
         (Fin(0.57, 0.67, 0.050), Fin(0.32, 0.40, 0.055)), 0.13),
    Kind("Red Sea Bream", 0.40, 0.33, 0.66, 0.44, 0.085, 0.19, 0.31, 0.42,
         (Fin(0.28, 0.74, 0.085, 0.45),), (Fin(0.62, 0.76, 0.055), Fin(0.34, 0.44, 0.060))),
    Kind("Sea Bass", 0.25, 0.38, 0.52, 0.68, 0.075, 0.17, 0.24, 0.34,
         (Fin(0.32, 0.50, 0.085, 0.4), Fin(0.55, 0.72, 0.065, 0.2)), (Fin(0.60, 0.72, 0.055), Fin(0.34, 0.42, 0.050))),
    Kind("Shrimp", 0.17, 0.30, 0.55, 0.80, 0.075, 0.14, 0.19, -0.25,
         (Fin(0.02, 0.14, 0.030, 0.8),), (), 0.10, 0.55, 6),
    Kind("Striped Red Mullet", 0.25, 0.33, 0.55, 0.58, 0.070, 0.18, 0.25, 0.52,
         (Fin(0.31, 0.46, 0.110, 0.2), Fin(0.60, 0.73, 0.060, 0.2)),
         (Fin(0.61, 0.71, 0.050), Fin(0.34, 0.42, 0.055)), 0.17),
    Kind("Trout", 0.25, 0.40, 0.50, 0.62, 0.090, 0.15, 0.22, 0.08,
         (Fin(0.42, 0.58, 0.080, 0.3), Fin(0.72, 0.77, 0.030, 0.6)), (Fin(0.64, 0.74, 0.055), Fin(0.48, 0.56, 0.050))),
)  # fmt: skip


# ----------------------------------------------------------------------------------------------------------------------

WIDTH, HEIGHT = 590, 445
"""Size of the photographed fish's images, pixels."""
STEPS = 2048
"""Points along the body at which an outline is known; finer than the pixels of any fish."""
JITTER = 0.07
"""Standard deviation of every proportion of an individual, relative to its kind's."""
ROUGH = 0.012
"""Height of the waves on an outline, as an imperfect segmentation leaves them, in lengths of the fish."""
TALLEST = 0.5
"""Largest distance of any part from the fish's axis, in lengths of the fish, with fins and bend."""
MOST_BITES = 2
"""Most round pieces that are missing, as if something lay over the fish."""


@dataclass(frozen=True)
class Outline:
    """Heights above and below the axis from nose to tail, and of the cut in the tail fin, at STEPS points."""

    above: np.ndarray
    below: np.ndarray
    cut: np.ndarray


@dataclass(frozen=True)
class Pose:
    """The pose of a fish in its image. Lengths are in widths of the image, angles in radians."""

    length: float
    angle: float
    across: float
    down: float
    mirrored: bool
    bend: float
    bites: tuple[tuple[float, float, float], ...]
    """Position along and off the body, and radius, of each missing piece, in lengths of the fish."""


def draw_fish(kind: int, number: int, seed: int = 0, width: int = WIDTH, height: int = HEIGHT) -> np.ndarray:
    """The silhouette (height x width, bool, True is fish) of one individual of a kind (0 to 8)."""
    random = np.random.default_rng([seed, kind, number])
    individual = _individual(KINDS[kind], random)
    return _render(_outline(individual, random), _pose(individual, random, height / width), width, height)


def _individual(kind: Kind, random: np.random.Generator) -> Kind:
    def vary(value: float) -> float:
        return value * float(np.exp(JITTER * random.standard_normal()))

    def fins(group: tuple[Fin, ...]) -> tuple[Fin, ...]:
        moved = []
        for fin in group:
            shift = 0.012 * random.standard_normal()
            moved.append(Fin(fin.begin + shift, fin.end + shift, vary(fin.height), fin.peak))
        return tuple(moved)

    return replace(
        kind, depth=vary(kind.depth), deepest=vary(kind.deepest), back=vary(kind.back), snout=vary(kind.snout),
        stalk=vary(kind.stalk), tail=vary(kind.tail), span=vary(kind.span),
        fork=kind.fork + 0.05 * random.standard_normal(),
        dorsal=fins(kind.dorsal), ventral=fins(kind.ventral), whisker=vary(kind.whisker), curl=vary(kind.curl),
    )  # fmt: skip


def _outline(kind: Kind, random: np.random.Generator) -> Outline:
    along = np.linspace(0.0, 1.0, STEPS)
    root = 1.0 - kind.tail
    front = np.clip(along / kind.deepest, 0, 1)
    rear = np.clip((along - kind.deepest) / (root - kind.deepest), 0, 1)
    # A quarter of an ellipse raised to the snout's power, then half a cosine down to the stalk.
    rise = (1 - (1 - front) ** 2) ** kind.snout
    fall = kind.stalk / kind.depth + (1 - kind.stalk / kind.depth) * (0.5 + 0.5 * np.cos(math.pi * rear))
    body = kind.depth * np.where(along < kind.deepest, rise, fall)
    above, below = body * kind.back, body * (1 - kind.back)
    for side, fins in ((above, kind.dorsal), (below, kind.ventral)):
        for fin in fins:
            side += _fin(along, fin)
    if kind.legs:
        below += (
            0.05 * np.clip((along - 0.25) / 0.05, 0, 1) * (along < 0.75) * (np.sin(along * 4 * math.pi * kind.legs) > 0)
        )
    if kind.whisker:
        below += kind.whisker * (np.abs(along - 0.09) < 0.012)
    for side in (above, below):
        side += ROUGH * _waves(along, random)
    in_tail = np.clip((along - root) / kind.tail, 0, 1)
    fan = (kind.stalk + (kind.span - kind.stalk) * in_tail**0.8) / 2
    if kind.fork < 0:
        fan = fan * np.sqrt(np.clip(1 - np.clip((in_tail - 1 + 0.6) / 0.6, 0, 1) ** 2, 0, 1))
    above, below = np.where(along > root, fan, above), np.where(along > root, fan, below)
    cut = fan * np.clip((in_tail - 1 + kind.fork) / max(kind.fork, 1e-6), 0, 1) if kind.fork > 0 else np.zeros(STEPS)
    return Outline(above.astype(np.float32), below.astype(np.float32), cut.astype(np.float32))


def _fin(along: np.ndarray, fin: Fin) -> np.ndarray:
    return np.interp(along, [fin.begin, fin.begin + fin.peak * (fin.end - fin.begin), fin.end], [0, fin.height, 0])


def _waves(along: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """A sum of four waves of random phase and amplitude, about 1 high."""
    total = np.zeros_like(along)
    for number, (amplitude, phase) in enumerate(random.random((4, 2))):
        total += amplitude * np.sin(2 * math.pi * ((3 + 4 * number) * along + phase)) / 2
    return total


def _pose(kind: Kind, random: np.random.Generator, aspect: float) -> Pose:
    length, bend = random.uniform(0.45, 0.75), 0.12 * random.standard_normal() + kind.curl
    angle = random.uniform(0, 2 * math.pi)
    # The centre may move as long as most of the fish stays inside.
    free_across = max(0.04, (1 - length * abs(math.cos(angle))) / 2 - 0.03)
    free_down = max(0.04, (aspect - length * abs(math.sin(angle))) / 2 - 0.03)
    across = 0.5 + random.uniform(-free_across, free_across)
    down = aspect / 2 + random.uniform(-free_down, free_down)
    bites = tuple(
        (random.uniform(0.1, 0.9), random.uniform(-0.15, 0.15), random.uniform(0.02, 0.05))
        for _ in range(random.integers(0, MOST_BITES + 1))
    )
    return Pose(length, angle, across, down, bool(random.integers(2)), float(bend), bites)


def _render(outline: Outline, pose: Pose, width: int, height: int) -> np.ndarray:
    """The image of a fish. Every pixel centre near it is compared with the outline, in the fish's coordinates."""
    cosine, sine = np.float32(math.cos(pose.angle)), np.float32(math.sin(pose.angle))
    reach_across = pose.length * (0.5 * abs(float(cosine)) + TALLEST * abs(float(sine)))
    reach_down = pose.length * (0.5 * abs(float(sine)) + TALLEST * abs(float(cosine)))
    columns = slice(max(0, int((pose.across - reach_across) * width)), int((pose.across + reach_across) * width) + 2)
    rows = slice(max(0, int((pose.down - reach_down) * width)), int((pose.down + reach_down) * width) + 2)
    image = np.zeros((height, width), bool)
    near = image[rows, columns]
    across = (_centres(width, width)[columns] - np.float32(pose.across)) / np.float32(pose.length)
    down = ((_centres(height, width)[rows] - np.float32(pose.down)) / np.float32(pose.length))[:, None]
    along = across * cosine + down * sine + np.float32(0.5)
    off = down * cosine - across * sine
    if pose.mirrored:
        off = -off
    middle = along - np.float32(0.5)
    off += np.float32(pose.bend) * (middle * middle - np.float32(1 / 12))
    place = np.clip((along * np.float32(STEPS)).astype(np.intp), 0, STEPS - 1)
    near[:] = (off < outline.above.take(place)) & (off > -outline.below.take(place)) & (along >= 0) & (along < 1)
    near &= np.abs(off) >= outline.cut.take(place)
    for at, aside, radius in pose.bites:
        near &= np.square(along - np.float32(at)) + np.square(off - np.float32(aside)) > np.float32(radius**2)
    return image


def _centres(count: int, width: int) -> np.ndarray:
    return (np.arange(count, dtype=np.float32) + np.float32(0.5)) / np.float32(width)


# ---- Drawn fish without files, image by image ------------------------------------------------------------------------

DRAWN = "drawn"
"""The word that stands for them where a folder could be named."""


@dataclass(frozen=True, kw_only=True)
class FishSource(ImageSource):
    """`count` individuals of each kind, in the order of the kinds' names and of their numbers."""

    count: int
    seed: int
    kinds: tuple[int, ...]
    """Number of the kind of each class."""

    def title(self, number: int) -> str:
        return f"{self.classes[number // self.count]} {number % self.count + 1:05d}"

    def size(self, number: int) -> tuple[int, int]:
        return WIDTH, HEIGHT

    def read(self, number: int) -> np.ndarray:
        fish = draw_fish(self.kinds[number // self.count], number % self.count + 1, self.seed)
        return fish[..., None].astype(np.uint8) * np.uint8(255)


def fish_source(count: int, seed: int = 0) -> FishSource:
    """The fish that `make_fish` draws with this count and seed."""
    kinds = sorted(range(len(KINDS)), key=lambda kind: KINDS[kind].name)
    return FishSource(
        layout="fish",
        name="fish",
        classes=tuple(KINDS[kind].name for kind in kinds),
        labels=np.repeat(np.arange(len(kinds), dtype=np.int64), count),
        origin={"drawn by": f"sonda {VERSION}", "seed": str(seed), "count": str(count), "image": f"{WIDTH}x{HEIGHT}"},
        count=count,
        seed=seed,
        kinds=tuple(kinds),
    )


# ---- A data set of drawn fish on disk, in the layout of the photographed ones ---------------------------------------

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
    """Draw `count` silhouettes of each of nine kinds as `Trout/Trout GT/00001.png`, and return the directory.

    `image` is (width, height) in pixels. The same seed gives the same files. The directory appears when all are drawn.
    Raises SondaError where it exists or cannot be written.
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
    require_images()
    partial = partial_path(out.parent)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        for left in out.parent.glob(f"{PARTIAL}*"):
            if is_abandoned(left) and (left / DRAWN_FILE).is_file():
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
    from PIL import Image

    last_report = time.monotonic()
    done, total = 0, count * len(KINDS)
    for at, kind in enumerate(KINDS):
        folder = place / kind.name / (kind.name + MASKS)
        folder.mkdir(parents=True)
        for number in range(1, count + 1):
            Image.fromarray(draw_fish(at, number, seed, *image)).save(folder / f"{number:05d}.png")
            done += 1
            now = time.monotonic()
            if say and now - last_report > SAY_EVERY_S:
                last_report = now
                say(f"drew {done:,} of {total:,} fish")
