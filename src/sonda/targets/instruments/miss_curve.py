"""The miss curve: the same modelled step with last-level caches of several sizes.

It shows, layer by layer, how much cache a program needs: the effect of partitioning a real cache, without doing so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from sonda.probes.callgrind.valgrind import CacheGeometry, CallgrindCaches
from sonda.probes.kernel_files import parse_size
from sonda.record.errors import SondaError
from sonda.record.spans import Spans

LEAST, MOST = 64 << 10, 1 << 30
"""Bytes of a last-level cache that are worth simulating."""


def parse_sizes(text: str) -> tuple[int, ...]:
    """`512KiB+2MiB` as bytes, smallest first; raises SondaError for what is no size of a cache."""
    sizes = set()
    for word in text.split("+"):
        try:
            size = parse_size(word)
        except ValueError:
            raise SondaError(f"{word!r} is not the size of a cache", "write: --probe callgrind:512KiB+2MiB") from None
        if not LEAST <= size <= MOST:
            raise SondaError(f"a last-level cache of {word} is not simulated", "give sizes from 64KiB to 1GiB")
        sizes.add(size)
    return tuple(sorted(sizes))


def resize_last_level(caches: CallgrindCaches, size: int) -> CallgrindCaches:
    """The same caches with a last level of about this size that callgrind can simulate."""
    return replace(caches, LL=CacheGeometry(size, caches.LL.ways, caches.LL.line).simulable())


def miss_curve(
    sizes: Sequence[int], caches: CallgrindCaches, modelled: Spans, model: Callable[[CallgrindCaches], Spans]
) -> list[dict[str, Any]]:
    """A point for the caches that were simulated already (`modelled`) and one for each size, smallest first.

    `model` runs one pass and returns its spans. Sizes that come to the same geometry are run once.
    """
    points = {str(caches.LL): miss_point(modelled, caches)}
    for size in sizes:
        resized = resize_last_level(caches, size)
        if str(resized.LL) not in points:
            points[str(resized.LL)] = miss_point(model(resized), resized)
    return sorted(points.values(), key=lambda point: int(point["bytes"]))


def miss_point(spans: Spans, caches: CallgrindCaches) -> dict[str, Any]:
    """Data misses of the last level by phase and by layer (without the layers inside it), as `run.json` keeps them."""
    misses = np.nan_to_num(spans.metric("ll_load_misses", "modelled") + spans.metric("ll_store_misses", "modelled"))
    kind, name, path = (spans.words(column).decoded() for column in ("kind", "name", "path"))
    parent = spans.number("parent")
    own_misses = misses.copy()
    for row in np.flatnonzero(kind == "layer").tolist():
        outer = int(parent[row])
        if outer >= 0 and kind[outer] == "layer":
            own_misses[outer] -= misses[row]
    phases: dict[str, float] = {}
    layers: dict[str, float] = {}
    for row in range(len(spans)):
        if kind[row] == "phase":
            phases[str(name[row])] = phases.get(str(name[row]), 0.0) + float(misses[row])
        elif kind[row] == "layer":
            layers[str(path[row])] = layers.get(str(path[row]), 0.0) + max(0.0, float(own_misses[row]))
    steps = np.flatnonzero(kind == "step")
    instructions = spans.metric("instructions", "modelled")
    return {
        "bytes": caches.LL.bytes,
        "LL": str(caches.LL),
        "phases": phases,
        "layers": layers,
        "instructions": float(instructions[steps[0]]) if len(steps) else 0.0,
    }
