"""The roofline: how long the machine's measured ceilings say that work takes at least, and what bounds it.

Williams, Waterman and Patterson 2009 (doi:10.1145/1498765.1498785), applied to one operation at a time: an operation
takes at least max(FLOPs / peak, bytes / bandwidth), and a layer, which runs its operations one after the other, at
least the sum of these. Summing first and dividing then would let a layer hide its memory traffic behind arithmetic that
runs at another moment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sonda.analysis.summary import Cost, PartSummary, Value

CACHE_PART = 0.5
"""Without a measured curve, bytes that fit in half of the last-level cache are taken to be found there."""
EXPLAINS = 0.5
"""A limit that accounts for less than half of the measured time does not name what bounds it."""
EXCEEDED = 1.05
"""Work above the roof by more than the ceilings' own uncertainty: the ceilings are too low, or the counts too high."""

PRECISIONS = {"fp32": "float32", "f32": "float32", "fp64": "float64", "f64": "float64", "bf16": "bfloat16",
              "fp16": "float16", "half": "float16"}  # fmt: skip
"""Short names of precisions, as options are written."""


def full_precision(name: str) -> str:
    """`bf16` -> `bfloat16`; other names as they are."""
    return PRECISIONS.get(name, name)


@dataclass(frozen=True)
class Ceilings:
    """What one machine reached with one number of threads, in one precision."""

    flops: float
    """FLOP/s."""
    dram_bandwidth: float
    """B/s."""
    cache_bandwidth: float
    """B/s."""
    cache_bytes: float
    """Size of the last-level cache."""
    cached_bytes: float
    """Bytes that an operation may touch and still find in the cache."""
    operation_ns: float
    """Cost of one smallest framework operation."""
    training_operation_ns: float
    """The same per operation of a training step."""
    precision: str
    threads: int
    measured: str
    library: str
    disturbed: bool = False
    """Whether other programs ran while they were measured: they are then too low."""

    def as_dict(self) -> dict[str, Any]:
        """For `Summary.ceilings`: every number with unit and source."""
        return {
            "flops": Value(self.flops, "FLOP/s", "measured"),
            "dram_bandwidth": Value(self.dram_bandwidth, "B/s", "measured"),
            "cache_bandwidth": Value(self.cache_bandwidth, "B/s", "measured"),
            "cache_bytes": Value(self.cache_bytes, "B", "counted"),
            "cached_bytes": Value(self.cached_bytes, "B", "derived"),
            "operation": Value(self.operation_ns, "ns", "measured"),
            "training_operation": Value(self.training_operation_ns, "ns", "measured"),
            "precision": self.precision,
            "threads": self.threads,
            "measured": self.measured,
            "library": self.library,
        }

    def bounds(self, flops: np.ndarray, traffic: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Per operation: least ns of arithmetic, least ns of memory, and whether its bytes fit in the cache.

        Unknown (NaN) counts give 0 ns: the roof is then a lower bound of the time.
        """
        cached = np.nan_to_num(traffic) <= self.cached_bytes
        bandwidth = np.where(cached, self.cache_bandwidth, self.dram_bandwidth)
        return np.nan_to_num(flops) / self.flops * 1e9, np.nan_to_num(traffic) / bandwidth * 1e9, cached


def _cached_bytes(entry: dict[str, Any], cache_bytes: float) -> float:
    """The largest footprint that was measured nearer to the cache's bandwidth than to DRAM's (geometrically).

    In a virtual machine the neighbours use the cache too, so its size says little about how much of it one gets.
    """
    curve, dram, cache = entry.get("bandwidth_curve"), entry.get("dram_bandwidth"), entry.get("cache_bandwidth")
    if not curve or not dram or not cache or entry.get("disturbed"):
        return CACHE_PART * cache_bytes
    return max((float(size) for size, rate in curve if rate**2 >= dram * cache), default=0.0)


def ceilings(machine: dict[str, Any], threads: int | None, precision: str) -> tuple[Ceilings | None, str]:
    """The ceilings that apply, or None and the reason why there are none.

    A run that does not say its number of threads is held against the largest that was measured.
    """
    record = machine.get("ceilings")
    if not isinstance(record, dict) or not record.get("threads"):
        return None, "the machine's ceilings were not measured"
    table = record["threads"]
    chosen = str(threads) if threads else max(table, key=int)
    if chosen not in table:
        return None, f"no ceilings were measured with {chosen} thread{'' if chosen == '1' else 's'}"
    entry = table[chosen]
    peak = entry.get("flops", {}).get(full_precision(precision))
    if not peak:
        return None, f"no peak was measured for {full_precision(precision)}"
    dram = entry.get("dram_bandwidth")
    if not dram:
        return None, "no memory bandwidth was measured"
    operation = float(entry.get("operation_ns") or 0.0)
    return Ceilings(
        flops=float(peak),
        dram_bandwidth=float(dram),
        cache_bandwidth=float(entry.get("cache_bandwidth") or dram),
        cache_bytes=float(record.get("cache_bytes") or 0.0),
        cached_bytes=_cached_bytes(entry, float(record.get("cache_bytes") or 0.0)),
        operation_ns=operation,
        training_operation_ns=float(entry.get("training_operation_ns") or operation),
        precision=full_precision(precision),
        threads=int(chosen),
        measured=str(record.get("measured", "")),
        library=str(record.get("library", "")),
        disturbed=bool(entry.get("disturbed")),
    ), ""  # fmt: skip


def name_bound(limits: dict[str, float], measured: float) -> str:
    """The largest of the limits (ns by name) if it explains at least half of the measured ns, else ''."""
    if not limits or measured <= 0:
        return ""
    name = max(limits, key=lambda limit: limits[limit])
    return name if limits[name] >= EXPLAINS * measured else ""


@dataclass(frozen=True)
class Point:
    """One mark of a roofline figure."""

    name: str
    kind: str
    """phase or layer."""
    intensity: float
    """FLOP/B."""
    achieved: float
    """FLOP/s."""
    share: float
    bound: str
    roof: float | None


def points(part: PartSummary) -> tuple[Point, ...]:
    """Phases and innermost layers that have FLOPs, bytes and a time."""
    marks = [_point(row.name, "phase", row.cost) for row in part.phases]
    marks += [_point(row.path or row.name, "layer", row.cost) for row in part.layers if row.leaf]
    return tuple(mark for mark in marks if mark is not None)


def _point(name: str, kind: str, cost: Cost) -> Point | None:
    flops, traffic, achieved = cost.flops.value, cost.bytes.value, cost.achieved.value
    if not flops or not traffic or not achieved:
        return None
    return Point(name, kind, flops / traffic, achieved, cost.share, cost.bound, cost.roof.value)


def lines(roofs: dict[str, Any]) -> tuple[tuple[str, Value], ...]:
    """The roofs of a figure, from `Summary.ceilings`: FLOP/s are flat, B/s are slopes; none if none were measured."""
    if "flops" not in roofs:
        return ()
    return (
        (f"{roofs['precision']} peak", roofs["flops"]),
        ("DRAM", roofs["dram_bandwidth"]),
        ("last-level cache", roofs["cache_bandwidth"]),
    )
