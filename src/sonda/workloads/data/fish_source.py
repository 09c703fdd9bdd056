"""Drawn fish without files: what `make_fish` would write and `prepare` would read, image by image."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sonda.version import VERSION
from sonda.workloads.data.fish_kinds import KINDS
from sonda.workloads.data.fish_shapes import HEIGHT, WIDTH, draw_fish
from sonda.workloads.data.source import Source

DRAWN = "drawn"
"""The word for them, where a folder could be named."""


@dataclass(frozen=True, kw_only=True)
class FishSource(Source):
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
