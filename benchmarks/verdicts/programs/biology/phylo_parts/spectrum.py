"""Frequencies of words in a text of bases."""

import torch
from torch import nn

CODES = {"A": 0, "C": 1, "G": 2, "T": 3}
BYTES = torch.zeros(256, dtype=torch.long)
for base, code in CODES.items():
    BYTES[ord(base)] = code


class Spectrum(nn.Module):
    def __init__(self, word):
        super().__init__()
        self.word = word

    def forward(self, texts):
        return torch.stack([self.count(text) for text in texts])

    def count(self, text):
        counts = [0] * 4**self.word
        index, last = 0, 4**self.word - 1
        for place, base in enumerate(text):
            index = (4 * index + CODES[base]) & last
            if place >= self.word - 1:
                counts[index] += 1
        return torch.tensor(counts, dtype=torch.float32).sqrt()
