"""The roofline: how long the machine's measured ceilings say that work takes at least, and what bounds it.

Williams, Waterman and Patterson 2009 (doi:10.1145/1498765.1498785), applied to one operation at a time: an operation
takes at least max(FLOPs / peak, bytes / bandwidth), and a layer, which runs its operations one after the other, at
least the sum of these. Summing first and dividing then would let a layer hide its memory traffic behind arithmetic that
runs at another moment.

A processor has ceilings for every number of threads, a GPU has its own; both have the same shape (`probes/ceilings`,
`probes/gpu_ceilings`). A GPU's theoretical peaks stand beside the measured ones; percent of roof is of the measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sonda.analysis.summary import Value

CACHE_PART = 0.5
"""Without a measured curve, bytes that fit in half of the last-level cache are taken to be found there."""
EXPLAINS = 0.5
"""A limit that accounts for less than half of the measured time does not name what bounds it."""
EXCEEDED = 1.05
"""Work above the roof by more than the ceilings' own uncertainty: the ceilings are too low, or the counts too high."""

PRECISIONS = {"fp32": "float32", "f32": "float32", "fp64": "float64", "f64": "float64", "bf16": "bfloat16",
              "fp16": "float16", "half": "float16"}  # fmt: skip
"""Short names of precisions, as options are written."""
SHORT = ("bfloat16", "float16")
"""Precisions of fewer bits than float32's, which can be computed as float32."""


def full_precision(name: str) -> str:
    """`bf16` -> `bfloat16`; other names as they are."""
    return PRECISIONS.get(name, name)


@dataclass(frozen=True)
class Ceilings:
    """What a processor reached with one number of threads, or a GPU, in one precision."""

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
    """0 on a GPU."""
    measured: str
    library: str
    disturbed: bool = False
    """Whether other programs ran while they were measured: they are then too low."""
    device: str = ""
    """`cuda:0`; '' for the processor."""
    peaks: dict[str, float] = field(default_factory=dict)
    """FLOP/s of all precisions that were measured."""
    theory: dict[str, Value] = field(default_factory=dict)
    """`flops` and `dram_bandwidth` as the maker's figures give them, where they are known."""
    theory_words: str = ""
    """How the theoretical peak comes about, and where its factors are printed."""
    convolution_flops: float = 0.0
    """FLOP/s that convolutions are held against, where that differs; 0 where it does not."""

    def as_dict(self) -> dict[str, Any]:
        """For `Summary.ceilings`: every number with unit and source."""
        on_gpu: dict[str, Any] = {"device": self.device} if self.device else {}
        on_gpu |= {f"theoretical_{name}": value for name, value in self.theory.items()}
        if self.theory_words:
            on_gpu["theoretical_peak_is"] = self.theory_words
        if self.convolution_flops:
            on_gpu["convolution_flops"] = Value(self.convolution_flops, "FLOP/s", "measured")
        return {
            "flops": Value(self.flops, "FLOP/s", "measured"),
            "dram_bandwidth": Value(self.dram_bandwidth, "B/s", "measured"),
            "cache_bandwidth": Value(self.cache_bandwidth, "B/s", "measured"),
            "cache_bytes": Value(self.cache_bytes, "B", "counted"),
            "cached_bytes": Value(self.cached_bytes, "B", "derived"),
            "operation": Value(self.operation_ns, "ns", "measured"),
            "training_operation": Value(self.training_operation_ns, "ns", "measured"),
            "precision": self.precision,
            **({} if self.device else {"threads": self.threads}),
            "measured": self.measured,
            "library": self.library,
            **on_gpu,
            "peaks": {name: Value(peak, "FLOP/s", "measured") for name, peak in self.peaks.items()},
        }

    def bounds(
        self, flops: np.ndarray, traffic: np.ndarray, convolution: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Per operation: least ns of arithmetic, least ns of memory, and whether its bytes fit in the cache.

        Unknown (NaN) counts give 0 ns: the roof is then a lower bound of the time. `convolution` marks convolutions.
        """
        cached = np.nan_to_num(traffic) <= self.cached_bytes
        bandwidth = np.where(cached, self.cache_bandwidth, self.dram_bandwidth)
        peak: Any = self.flops
        if self.convolution_flops and convolution is not None:
            peak = np.where(convolution, self.convolution_flops, self.flops)
        return np.nan_to_num(flops) / peak * 1e9, np.nan_to_num(traffic) / bandwidth * 1e9, cached


def _cached_bytes(entry: dict[str, Any], cache_bytes: float) -> float:
    """The largest footprint that was measured nearer to the cache's bandwidth than to DRAM's (geometrically).

    In a virtual machine the neighbours use the cache too, so its size says little about how much of it one gets.
    """
    curve, dram, cache = entry.get("bandwidth_curve"), entry.get("dram_bandwidth"), entry.get("cache_bandwidth")
    if not curve or not dram or not cache or entry.get("disturbed"):
        return CACHE_PART * cache_bytes
    return max((float(size) for size, rate in curve if rate**2 >= dram * cache), default=0.0)


def ceilings(
    machine: dict[str, Any],
    threads: int | None,
    precision: str,
    device: str = "",
    tf32: Mapping[str, bool] | None = None,
) -> tuple[Ceilings | None, str]:
    """The ceilings that apply, or None and the reason why there are none.

    `device` is '' for the processor, `cuda:0` or `cuda` (the first that was measured) for a GPU. A run that does not
    say its number of threads is held against the largest that was measured. `tf32` says whether a GPU's float32 runs
    as TF32 in products (`matmul`) and in convolutions (`convolution`).
    """
    entry, chosen, reason = _entry(machine.get("ceilings"), threads, device)
    if entry is None:
        return None, reason
    # A mixed precision is held against the peak of the short one, in which its products are.
    name = full_precision(precision).removeprefix("mixed_")
    peaks = {full_precision(one): float(peak) for one, peak in entry.get("flops", {}).items() if peak}
    # A GPU without TF32 computes float32 as it is, whatever the program allows.
    as_tf32 = dict(tf32 or {}) if device and name == "float32" and "tf32" in peaks else {}
    if as_tf32.get("matmul"):
        name = "tf32"
    convolutions = "tf32" if as_tf32.get("convolution") else "float32" if as_tf32 else name
    if name not in peaks:
        return None, f"no peak was measured for {name}"
    # A processor without arithmetic of a short type computes it as float32, some libraries better than others: no peak
    # of a short type bounds what can be reached below that.
    short = not device and name in SHORT
    peak = max(peaks[name], peaks.get("float32", 0.0)) if short else peaks[name]
    dram = entry.get("dram_bandwidth")
    if not dram:
        return None, "no memory bandwidth was measured"
    operation = float(entry.get("operation_ns") or 0.0)
    record = entry if device else machine["ceilings"]
    size = float(record.get("cache_bytes") or 0.0)
    theory, words = _theory(entry.get("theory"), name)
    return Ceilings(
        flops=peak,
        dram_bandwidth=float(dram),
        cache_bandwidth=float(entry.get("cache_bandwidth") or dram),
        cache_bytes=size,
        cached_bytes=_cached_bytes(entry, size),
        operation_ns=operation,
        training_operation_ns=float(entry.get("training_operation_ns") or operation),
        precision=name,
        threads=0 if device else int(chosen),
        measured=str(record.get("measured", "")),
        library=str(record.get("library", "")),
        disturbed=bool(entry.get("disturbed")),
        device=chosen if device else "",
        peaks=peaks,
        theory=theory,
        theory_words=words,
        convolution_flops=peaks.get(convolutions, 0.0) if convolutions != name else 0.0,
    ), ""  # fmt: skip


def _entry(record: Any, threads: int | None, device: str) -> tuple[dict[str, Any] | None, str, str]:
    """What was measured with this number of threads or on this GPU, its key, and the reason where there is nothing."""
    table = record.get("devices" if device else "threads") if isinstance(record, dict) else None
    if not table:
        return None, "", f"the {'GPU' if device else 'machine'}'s ceilings were not measured"
    if device:
        chosen = next(iter(table)) if device == "cuda" else device
        reason = f"no ceilings were measured on {chosen}"
    else:
        chosen = str(threads) if threads else max(table, key=int)
        reason = f"no ceilings were measured with {chosen} thread{'' if chosen == '1' else 's'}"
    return (table[chosen], chosen, "") if chosen in table else (None, chosen, reason)


def _theory(record: Any, precision: str) -> tuple[dict[str, Value], str]:
    """The theoretical peak of a precision and the memory's bandwidth, and how the peak comes about."""
    if not isinstance(record, dict):
        return {}, ""
    source = "published" if record.get("card") else "derived"
    peak, bandwidth = record.get("flops", {}).get(precision), record.get("dram_bandwidth")
    found = {}
    if peak:
        found["flops"] = Value(float(peak["value"]), "FLOP/s", source)
    if bandwidth:
        found["dram_bandwidth"] = Value(float(bandwidth["value"]), "B/s", source)
    return found, f"{peak['words']} ({peak['source']})" if peak else ""


def name_bound(limits: dict[str, float], measured: float) -> str:
    """The largest of the limits (ns by name) if it explains at least half of the measured ns, else ''."""
    if not limits or measured <= 0:
        return ""
    name = max(limits, key=lambda limit: limits[limit])
    return name if limits[name] >= EXPLAINS * measured else ""


def lines(roofs: dict[str, Any]) -> tuple[tuple[str, Value], ...]:
    """The roofs of a figure, from `Summary.ceilings`: FLOP/s are flat, B/s are slopes; none if none are known.

    Theoretical ones come last: they are drawn dashed, because their source is not a measurement. A simulated
    accelerator has no others.
    """
    drawn: list[tuple[str, Value]] = []
    if "flops" in roofs:
        cache = "L2 cache" if "device" in roofs else "last-level cache"
        drawn += [
            (f"{roofs['precision']} peak", roofs["flops"]),
            ("DRAM", roofs["dram_bandwidth"]),
            (cache, roofs["cache_bandwidth"]),
        ]
    if "convolution_flops" in roofs:
        kind = "float32" if roofs["precision"] == "tf32" else "tf32"
        drawn.append((f"{kind} peak (convolutions)", roofs["convolution_flops"]))
    if "theoretical_flops" in roofs:
        drawn.append((f"{roofs.get('precision', '')} peak in theory".strip(), roofs["theoretical_flops"]))
    if "theoretical_dram_bandwidth" in roofs:
        drawn.append(("DRAM in theory", roofs["theoretical_dram_bandwidth"]))
    return tuple(drawn)
