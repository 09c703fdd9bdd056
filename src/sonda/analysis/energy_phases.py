"""Which phases a program was in while its power was read: their shares of equal stretches of the time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sonda.analysis.energy_summary import Beneath
from sonda.record.span import Spans

STRETCHES = 240
"""Of the whole time: as many as a figure can show."""


def phases_beneath(spans: Spans, regions: Sequence[tuple[str, int, int]], duration: float) -> Beneath | None:
    """Phases of the first rank, or marked regions where there are no phases; None where there is neither.

    Times are ns since the program began.
    """
    rank = spans.number("rank")
    rows = np.flatnonzero((rank == (rank.min() if len(rank) else 0)) & spans.where(kind="phase"))
    if len(rows):
        names = spans.words("name").decoded()[rows]
        begin = spans.number("start")[rows].astype(np.float64)
        end = begin + spans.number("duration")[rows]
    else:
        names = np.array([name for name, _, _ in regions])
        begin = np.array([one for _, one, _ in regions], dtype=np.float64)
        end = np.array([one for _, _, one in regions], dtype=np.float64)
    if not len(names) or duration <= 0:
        return None
    edges = np.linspace(0.0, duration, STRETCHES + 1)
    shares = {
        str(name): tuple(np.clip(_inside(begin[names == name], end[names == name], edges), 0, 1).tolist())
        for name in dict.fromkeys(names.tolist())
    }
    return Beneath(tuple((edges[:-1] / 1e9).tolist()), duration / STRETCHES / 1e9, shares)


def _inside(begin: np.ndarray, end: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Share of every stretch that intervals cover: differences of what they cover up to each edge."""
    order = np.argsort(begin)
    begin, end = begin[order], end[order]
    covered = np.zeros(len(edges))
    for at, edge in enumerate(edges):
        started = int(np.searchsorted(begin, edge))
        covered[at] = np.minimum(end[:started], edge).sum() - begin[:started].sum()
    return np.diff(covered) / np.diff(edges)
