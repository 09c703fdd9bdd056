"""Splits: shares of a data set for training, validation and test, every class in proportion."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from sonda.record.errors import SondaError


def split(labels: np.ndarray, fractions: Sequence[float], seed: int = 0) -> list[np.ndarray]:
    """Numbers of the images of each share, ascending; together they are every image once.

    `fractions` add up to 1. A share has its fraction of all images, rounded so that the shares add up (the largest
    remainders are rounded up), and of each class its proportion, rounded so that classes and shares add up both. Which
    images go where depends on `seed` alone. Raises SondaError for a share that would be empty though asked for.
    """
    sizes = share_sizes(len(labels), fractions)
    counts = np.bincount(labels)
    table = _class_sizes(counts, sizes)
    random = np.random.default_rng(seed)
    shares: list[list[np.ndarray]] = [[] for _ in sizes]
    for kind in range(len(counts)):
        members = random.permutation(np.flatnonzero(labels == kind))
        for share, piece in zip(shares, np.split(members, np.cumsum(table[kind])[:-1]), strict=True):
            share.append(piece)
    return [np.sort(np.concatenate(share)) for share in shares]


def share_sizes(count: int, fractions: Sequence[float]) -> list[int]:
    """How many of `count` images each fraction is; they add up to `count`. Raises SondaError."""
    check_fractions(fractions)
    # What was written, not its binary neighbour: 0.15 of 100 is 15, and 0.07 of 100 is 7.
    written = [Fraction(repr(float(one))) for one in fractions]
    exact = [one * count / sum(written) for one in written]
    sizes = [math.floor(one) for one in exact]
    by_remainder = sorted(range(len(exact)), key=lambda at: (sizes[at] - exact[at], at))
    for at in by_remainder[: count - sum(sizes)]:
        sizes[at] += 1
    for one, size in zip(fractions, sizes, strict=True):
        if one > 0 and not size:
            raise SondaError(f"a share of {one:g} of {count:,} images holds none", "give more images or a larger share")
    return sizes


def check_fractions(fractions: Sequence[float]) -> None:
    """Raise SondaError for fractions that are no shares of a whole."""
    text = ", ".join(f"{one:g}" for one in fractions)
    if not fractions or not all(math.isfinite(one) and 0 <= one <= 1 for one in fractions):
        raise SondaError(f"fractions {text} are not all between 0 and 1", "give some such as 0.85, 0.02, 0.13")
    if abs(math.fsum(fractions) - 1) > 1e-9:
        raise SondaError(f"fractions {text} add up to {math.fsum(fractions):g}", "let them add up to 1")


def _class_sizes(counts: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """Classes x shares: rows add up to `counts`, columns to `sizes`.

    One share after the other is taken from what is left, evenly along the row of all images in order of their classes:
    of the first m images the share has m * size / left, rounded. So no entry is ever negative, and a class has within 1
    of its proportion of what is left.
    """
    table = np.zeros((len(counts), len(sizes)), np.int64)
    left = counts.astype(np.int64)
    for at, size in enumerate(sizes):
        total = int(left.sum())
        if total:
            taken = (2 * np.cumsum(left) * size + total) // (2 * total)
            table[:, at] = np.diff(taken, prepend=0)
            left = left - table[:, at]
    return table
