"""Batches: a grid cut into pieces that are grids themselves, each a run of rows that follow one another."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

Axes = dict[str, tuple[str, ...]]


def cut(axes: Mapping[str, Sequence[str]], most: int) -> Iterator[Axes]:
    """The grid in pieces of at most `most` points, in the order of its rows, the last axis fastest.

    The first axes have one value in a piece, the next some of its values, those behind it all of theirs.
    """
    keys = list(axes)
    sizes = [len(axes[key]) for key in keys]
    place = 0
    while place < len(keys) and math.prod(sizes[place:]) > most:
        place += 1
    if not place:
        yield {key: tuple(values) for key, values in axes.items()}
        return
    key, behind = keys[place - 1], math.prod(sizes[place:])
    together = max(1, most // behind)
    for number in range(math.prod(sizes[: place - 1])):
        fixed: Axes = {}
        for at in reversed(range(place - 1)):
            number, choice = divmod(number, sizes[at])
            fixed[keys[at]] = (axes[keys[at]][choice],)
        for begin in range(0, sizes[place - 1], together):
            some = {key: tuple(axes[key][begin : begin + together])}
            piece = {**fixed, **some, **{one: tuple(axes[one]) for one in keys[place:]}}
            yield {one: piece[one] for one in keys}
