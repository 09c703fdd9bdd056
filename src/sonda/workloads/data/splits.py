"""Splits a data set into shares for training, validation and test, with every class in proportion."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from sonda.record.errors import SondaError


def split(labels: np.ndarray, fractions: Sequence[float], seed: int = 0) -> list[np.ndarray]:
    """Numbers of the images of each share, ascending; every image is in exactly one share.

    `fractions` add up to 1. A share has its fraction of all images, rounded so that the shares add up (the largest
    remainders are rounded up). It has its proportion of each class, rounded so that both classes and shares add up.
    `seed` decides which images go where. Raises SondaError for a share above 0 that would be empty.
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
    # The decimal as written, not its binary approximation: 0.15 of 100 is 15, and 0.07 of 100 is 7.
    written = [Fraction(repr(float(fraction))) for fraction in fractions]
    exact = [fraction * count / sum(written) for fraction in written]
    sizes = [math.floor(size) for size in exact]
    by_remainder = sorted(range(len(exact)), key=lambda at: (sizes[at] - exact[at], at))
    for at in by_remainder[: count - sum(sizes)]:
        sizes[at] += 1
    for fraction, size in zip(fractions, sizes, strict=True):
        if fraction > 0 and not size:
            raise SondaError(
                f"a share of {fraction:g} of {count:,} images holds none", "give more images or a larger share"
            )
    return sizes


def check_fractions(fractions: Sequence[float]) -> None:
    """Raise SondaError for fractions that do not add up to 1, or are not all between 0 and 1."""
    text = ", ".join(f"{fraction:g}" for fraction in fractions)
    if not fractions or not all(math.isfinite(fraction) and 0 <= fraction <= 1 for fraction in fractions):
        raise SondaError(f"fractions {text} are not all between 0 and 1", "give some such as 0.85, 0.02, 0.13")
    if abs(math.fsum(fractions) - 1) > 1e-9:
        raise SondaError(f"fractions {text} add up to {math.fsum(fractions):g}", "let them add up to 1")


def _class_sizes(counts: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """Classes x shares: rows add up to `counts`, columns to `sizes`.

    Shares are taken one after the other from the images that are left, evenly along the row of these images in order of
    their classes: of the first m images a share has m * size / left, rounded. So no entry is negative, and each class
    is within 1 of its proportion of what is left.
    """
    table = np.zeros((len(counts), len(sizes)), np.int64)
    left = counts.astype(np.int64)
    for at, size in enumerate(sizes):
        total = int(left.sum())
        if total:
            cumulative = (2 * np.cumsum(left) * size + total) // (2 * total)
            table[:, at] = np.diff(cumulative, prepend=0)
            left = left - table[:, at]
    return table
