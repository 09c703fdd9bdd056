"""Fish drawn from proportions: a generator of silhouettes, so that training runs without any data of somebody else's.

Every image is made from its own seed (seed, kind, number): image 7 of a kind is the same fish whatever the number of
images and, in finer or coarser pixels, whatever their size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from sonda.workloads.data.fish_kinds import KINDS, Fin, Kind

WIDTH, HEIGHT = 590, 445
"""Pixels of the photographed fish's images."""
STEPS = 2048
"""Places along the body at which an outline is known; finer than the pixels of any fish."""
JITTER = 0.07
"""Standard deviation of every proportion of an individual, relative to its kind's."""
ROUGH = 0.012
"""Height of the waves that an imperfect segmentation leaves on an outline, in lengths of the fish."""
TALLEST = 0.5
"""No part of a fish is further off its line than this, in its lengths, fins and bend included."""
MOST_BITES = 2
"""Round pieces that may be missing, as where something lay over the fish."""


@dataclass(frozen=True)
class Outline:
    """Heights above and below the line from nose to tail, and of the cut in the tail fin, at STEPS places."""

    above: np.ndarray
    below: np.ndarray
    cut: np.ndarray


@dataclass(frozen=True)
class Pose:
    """How an individual lies in its image. Lengths in widths of the image, angles in radians."""

    length: float
    angle: float
    across: float
    down: float
    mirrored: bool
    bend: float
    bites: tuple[tuple[float, float, float], ...]
    """Place along and off the body and radius of each, in lengths of the fish."""


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
    # An ellipse's quarter raised to the snout's power, then half a cosine down to the stalk.
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
    """Every pixel's centre near the fish is brought into its own coordinates and compared with the outline there."""
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
