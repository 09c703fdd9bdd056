"""Features of log lines: every field and every pair of fields, hashed."""

import itertools
import zlib

import torch


class Hasher:
    def __init__(self, buckets):
        self.buckets = buckets

    def slots(self, fields):
        return fields + fields * (fields - 1) // 2

    def code(self, text):
        return zlib.crc32(text.encode("utf-8")) % self.buckets

    def row(self, line):
        fields = line.split("\t")
        crossed = [f"{a}&{b}" for a, b in itertools.combinations(fields, 2)]
        return [self.code(text) for text in fields + crossed]

    def __call__(self, samples):
        codes = torch.tensor([self.row(line) for line, _ in samples])
        return codes, torch.tensor([clicked for _, clicked in samples], dtype=torch.float32)
