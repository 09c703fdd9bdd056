"""Multispectral tiles of fields, kept in compressed shards as they come from the provider."""

import tempfile
from pathlib import Path

import numpy as np


class ShardStore:
    """A folder of shards; a tile is asked for by its number."""

    def __init__(self, shards=12, tiles=32, bands=6, side=40, seed=1):
        self.folder = tempfile.TemporaryDirectory(prefix="tiles-")
        self.tiles = tiles
        random = np.random.default_rng(seed)
        self.crop = random.integers(0, 8, shards * tiles)
        for number in range(shards):
            crop = self.crop[number * tiles : (number + 1) * tiles]
            noise = random.integers(0, 24, (tiles, bands, side, side))
            pixels = noise + 20 * crop[:, None, None, None] + 5 * np.arange(bands)[:, None, None]
            np.savez_compressed(self.path(number), pixels=pixels.astype(np.uint16))

    def path(self, number):
        return Path(self.folder.name) / f"shard-{number:03d}.npz"

    def shard(self, number):
        with np.load(self.path(number)) as archive:
            return archive["pixels"]

    def __len__(self):
        return len(self.crop)

    def __getitem__(self, index):
        number, row = divmod(index, self.tiles)
        return self.shard(number)[row], self.crop[index]
