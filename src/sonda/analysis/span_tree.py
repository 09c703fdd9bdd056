"""The tree of spans, walked with whole columns at a time: a run may hold millions."""

from __future__ import annotations

import numpy as np


def nearest(parent: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """For every span the row of the nearest wanted one among itself and the spans around it, or -1.

    Every pointer jumps over the pointer it points to, so a tree of depth d takes log2(d) rounds.
    """
    count = len(parent)
    outside = count
    pointer = np.empty(count + 1, dtype=np.int64)
    pointer[:count] = np.where(parent >= 0, parent, outside)
    rows = np.flatnonzero(wanted)
    pointer[rows] = rows
    pointer[outside] = outside
    for _ in range(64):
        jumped = pointer[pointer]
        if np.array_equal(jumped, pointer):
            break
        pointer = jumped
    ancestors = pointer[:count]
    # A damaged tree with a circle in it never arrives anywhere.
    arrived = (ancestors < count) & wanted[np.minimum(ancestors, count - 1)] if count else np.zeros(0, dtype=bool)
    return np.where(arrived, ancestors, -1)


def subtotals(parent: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Values of every span (rows of a table) plus those of all spans inside it; `parent` is -1 at the top."""
    totals = values.copy()
    depth = np.zeros(len(parent), dtype=np.int64)
    above = parent.copy()
    for _ in range(len(parent)):
        inside = above >= 0
        if not inside.any():
            break
        depth += inside
        above = np.where(inside, parent[above], -1)
    for level in range(int(depth.max(initial=0)), 0, -1):
        rows = np.flatnonzero(depth == level)
        np.add.at(totals, parent[rows], totals[rows])
    return totals


def outer_path(path: str, known: dict[str, int]) -> str | None:
    """The path of the module around this one, among those that are known; None for a model itself."""
    if not path:
        return None
    outer = path
    while outer:
        outer = outer.rpartition(".")[0]
        if outer in known:
            return outer
    return None


class PathTree:
    """Module paths as a tree: which module is inside which."""

    def __init__(self, paths: tuple[str, ...]) -> None:
        known = {path: index for index, path in enumerate(paths)}
        outers = [outer_path(path, known) for path in paths]
        self.parent = np.array([-1 if outer is None else known[outer] for outer in outers], dtype=np.int64)
        self.leaf = np.ones(len(paths), dtype=bool)
        self.leaf[self.parent[self.parent >= 0]] = False
        self.depth = np.zeros(len(paths), dtype=np.int64)
        for index in sorted(range(len(paths)), key=lambda i: len(paths[i])):
            if self.parent[index] >= 0:
                self.depth[index] = self.depth[self.parent[index]] + 1

    def inclusive(self, own: np.ndarray) -> np.ndarray:
        """Rows (one per path) plus the rows of everything inside."""
        return subtotals(self.parent, own)
