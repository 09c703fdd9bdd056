"""Judgements as one long row of tokens, 16 bits each, in a file that is mapped into memory."""

import tempfile
from pathlib import Path

import numpy as np
import torch


class Corpus:
    def __init__(self, tokens, words, context, seed):
        self.folder = tempfile.TemporaryDirectory(prefix="judgements-")
        self.context = context
        self.random = np.random.default_rng(seed)
        path = Path(self.folder.name) / "tokens.bin"
        walk = self.random.integers(1, 7, tokens // 30).cumsum() % words
        np.tile(walk.astype(np.uint16), 30).tofile(path)
        self.tokens = np.memmap(path, dtype=np.uint16, mode="r")

    def batch(self, size):
        start = self.random.integers(0, len(self.tokens) - self.context - 1, size)
        window = start[:, None] + np.arange(self.context + 1)
        tokens = torch.from_numpy(self.tokens.astype(np.int64))[torch.from_numpy(window)]
        return tokens[:, :-1], tokens[:, 1:]
