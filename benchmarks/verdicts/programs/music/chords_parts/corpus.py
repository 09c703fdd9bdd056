"""Songs as lists of chords, and a frame for each bar of the training."""

import gc
import random
from contextlib import contextmanager

import torch

ROOTS = 12
KINDS = 6


class Chord:
    def __init__(self, root, kind, notes):
        self.root, self.kind, self.notes = root, kind, notes

    @property
    def code(self):
        return self.root * KINDS + self.kind


class Songbook:
    size = ROOTS * KINDS

    def __init__(self, songs, length=240, seed=6):
        self.chance = random.Random(seed)
        self.songs = [list(self._write(length)) for _ in range(songs)]
        self.codes = torch.tensor([[chord.code for chord in song] for song in self.songs])

    def _write(self, length):
        root = self.chance.randrange(ROOTS)
        for _ in range(length):
            root = (root + self.chance.choice((0, 5, 7, 9))) % ROOTS
            kind = self.chance.randrange(KINDS) // 2
            yield Chord(root, kind, [root, root + 4, root + 7])

    def excerpt(self, count, length):
        start = self.chance.randrange(len(self.songs[0]) - length)
        return self.codes[torch.randint(len(self.codes), (count,)), start : start + length]


@contextmanager
def bar(number):
    """One bar: afterwards nothing of it is left."""
    try:
        yield number
    finally:
        gc.collect()
