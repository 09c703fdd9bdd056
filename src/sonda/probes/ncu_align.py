"""Two sequences of launches of the same program, laid beside each other: by order, and by name where they differ."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

MOST = 5_000
"""Launches that differ in the middle and are still compared one by one; the time grows with their square."""


def align(left: Sequence[str], right: Sequence[str]) -> list[tuple[int, int]]:
    """Pairs of positions with equal names, both in order. Equal beginnings and ends are taken as they are."""
    head = 0
    while head < min(len(left), len(right)) and left[head] == right[head]:
        head += 1
    tail = 0
    while tail < min(len(left), len(right)) - head and left[-1 - tail] == right[-1 - tail]:
        tail += 1
    pairs = [(index, index) for index in range(head)]
    first, second = left[head : len(left) - tail], right[head : len(right) - tail]
    if first and second and max(len(first), len(second)) <= MOST:
        for block in SequenceMatcher(None, first, second, autojunk=False).get_matching_blocks():
            pairs += [(head + block.a + index, head + block.b + index) for index in range(block.size)]
    pairs += [(len(left) - tail + index, len(right) - tail + index) for index in range(tail)]
    return pairs
