"""Work that calls of jitted functions hand over: when instructions of their modules ran, on threads or on devices.

A call of JAX returns while XLA still works. The profile says of an instruction which module it is of, and a module has
the name of its function: `jit_step` that of `step`. Work of no such module is nobody's.
"""

from __future__ import annotations

import re

import numpy as np

NEAR = 20_000
"""ns. Work with shorter pauses is remembered as one stretch."""
MOST = 1 << 18
"""Stretches of one module, 4 MB; of more the shorter half of the pauses is forgotten."""
MODULE = "jit_"
OTHER = re.compile(r"[^\w.\-]")
"""What stands in the name of a function and not in that of its module."""


class HandedWork:
    """Stretches of work by the module that they are of, in ns."""

    def __init__(self) -> None:
        self._parts: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
        self._size: dict[str, int] = {}

    def add(self, start: np.ndarray, end: np.ndarray, module: np.ndarray, modules: list[str]) -> None:
        """Instructions of one thread or stream; `module`: of each its place among `modules`, below 0 for none."""
        for place, name in enumerate(modules):
            mine = module == place
            if not name.startswith(MODULE) or not mine.any():
                continue
            key = name.rstrip("_")
            known = self._parts.setdefault(key, [])
            known.append(_stretches(start[mine], end[mine]))
            self._size[key] = self._size.get(key, 0) + len(known[-1][0])
            if self._size[key] > MOST:
                self._join(key, MOST // 2)

    def clear(self) -> None:
        self._parts.clear()
        self._size.clear()

    def until(self, function: str, before: np.ndarray) -> np.ndarray:
        """Until when (ns) what began of a function's module before each of these moments was worked on; the smallest
        number where nothing did."""
        key = (MODULE + OTHER.sub("_", function)).rstrip("_")
        found = np.full(len(before), np.iinfo(np.int64).min)
        if key in self._parts:
            start, end = self._join(key, MOST)
            at = np.searchsorted(start, before, "left") - 1
            found[at >= 0] = end[at[at >= 0]]
        return found

    def _join(self, key: str, most: int) -> tuple[np.ndarray, np.ndarray]:
        """All stretches of a module in the order of time, none inside another; they are kept so."""
        parts = self._parts[key]
        if len(parts) > 1 or self._size[key] > most:
            start, end = (np.concatenate(one) for one in zip(*parts, strict=True))
            joined = _stretches(start, end, most)
            self._parts[key], self._size[key] = [joined], len(joined[0])
        return self._parts[key][0]


def _stretches(start: np.ndarray, end: np.ndarray, most: int = MOST) -> tuple[np.ndarray, np.ndarray]:
    """Beginnings and ends of stretches, in the order of time; where there are more than `most`, the longest pauses
    are between them."""
    order = np.argsort(start, kind="stable")
    start, reached = start[order], np.maximum.accumulate(end[order])
    pause = start[1:] - reached[:-1]
    apart = np.flatnonzero(pause > NEAR) + 1
    if len(apart) >= most:
        apart = np.sort(apart[np.argsort(-pause[apart - 1], kind="stable")[: most - 1]])
    first = np.concatenate(([0], apart))
    return start[first], reached[np.concatenate((apart, [len(start)])) - 1]
