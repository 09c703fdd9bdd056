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

from sonda.analysis import reasons, wording
from sonda.analysis.bounds import CEILINGS
from sonda.analysis.doubts import HeldAgainstTf32
from sonda.analysis.summary import Value
from sonda.record.machine import CardTheory, Machine, MeasuredCeilings, ReachedCeilings
from sonda.record.run import RunInfo

CACHE_PART = 0.5
"""Without a measured curve, bytes that fit in half of the last-level cache are taken to be found there."""
EXPLAINS = 0.5
"""A limit that accounts for less than half of the measured time does not name what bounds it."""

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


def _cached_bytes(reached: ReachedCeilings, cache_bytes: float) -> float:
    """The largest footprint that was measured nearer to the cache's bandwidth than to DRAM's (geometrically).

    In a virtual machine the neighbours use the cache too, so its size says little about how much of it one gets.
    """
    curve, dram, cache = reached.bandwidth_curve, reached.dram_bandwidth, reached.cache_bandwidth
    if not curve or not dram or not cache:
        return CACHE_PART * cache_bytes
    return max((float(size) for size, rate in curve if rate**2 >= dram * cache), default=0.0)


def ceilings(
    machine: Machine,
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
    measured = machine.ceilings or MeasuredCeilings()
    reached, chosen, reason = _reached(measured, threads, device)
    reason = reason or _doubt(reached, "GPU" if device else "machine")
    if reached is None or reason:
        return None, reason
    # A mixed precision is held against the peak of the short one, in which its products are.
    name = full_precision(precision).removeprefix("mixed_")
    peaks = {full_precision(precision): float(peak) for precision, peak in reached.flops.items() if peak}
    # A GPU without TF32 computes float32 as it is, whatever the program allows.
    as_tf32 = dict(tf32 or {}) if device and name == "float32" and "tf32" in peaks else {}
    if as_tf32.get("matmul"):
        name = "tf32"
    convolutions = "tf32" if as_tf32.get("convolution") else "float32" if as_tf32 else name
    if name not in peaks:
        return None, reasons.NO_PEAK_OF.format(name)
    # A processor without arithmetic of a short type computes it as float32, some libraries better than others: no peak
    # of a short type bounds what can be reached below that.
    short = not device and name in SHORT
    peak = max(peaks[name], peaks.get("float32", 0.0)) if short else peaks[name]
    dram = reached.dram_bandwidth
    if not dram:
        return None, reasons.NO_BANDWIDTH
    operation = float(reached.operation_ns)
    origin = reached if device else measured
    size = float(origin.cache_bytes)
    theory, words = _theory(reached.theory, name)
    return Ceilings(
        flops=peak,
        dram_bandwidth=float(dram),
        cache_bandwidth=float(max(reached.cache_bandwidth, dram)),
        cache_bytes=size,
        cached_bytes=_cached_bytes(reached, size),
        operation_ns=operation,
        training_operation_ns=float(reached.training_operation_ns or operation),
        precision=name,
        threads=0 if device else int(chosen),
        measured=origin.measured,
        library=origin.library,
        device=chosen if device else "",
        peaks=peaks,
        theory=theory,
        theory_words=words,
        convolution_flops=peaks.get(convolutions, 0.0) if convolutions != name else 0.0,
    ), ""  # fmt: skip


def _reached(measured: MeasuredCeilings, threads: int | None, device: str) -> tuple[ReachedCeilings | None, str, str]:
    """What was measured with this number of threads or on this GPU, its key, and the reason where there is nothing."""
    table = measured.devices if device else measured.threads
    if not table:
        return None, "", reasons.CEILINGS_NOT_MEASURED.format("GPU" if device else "machine")
    if device:
        chosen = next(iter(table)) if device == "cuda" else device
        reason = reasons.NO_CEILINGS_ON.format(chosen)
    else:
        chosen = str(threads) if threads else max(table, key=int)
        reason = reasons.NO_CEILINGS_WITH.format(wording.plural(int(chosen), "thread"))
    return (table[chosen], chosen, "") if chosen in table else (None, chosen, reason)


def _doubt(reached: ReachedCeilings | None, whose: str) -> str:
    """Why nothing can be held against what was measured; '' where it can be."""
    if reached is None:
        return ""
    if reached.disturbed:
        return reasons.CEILINGS_DISTURBED.format(whose)
    slow = 0 < reached.cache_bandwidth < (1 - CEILINGS) * reached.dram_bandwidth
    return reasons.SLOW_CACHE.format(whose) if slow else ""


def _theory(card: CardTheory | None, precision: str) -> tuple[dict[str, Value], str]:
    """The theoretical peak of a precision and the memory's bandwidth, and how the peak comes about."""
    if card is None:
        return {}, ""
    source = "published" if card.card else "derived"
    peak = card.flops.get(precision)
    theory = {}
    if peak is not None:
        theory["flops"] = Value(float(peak.value), "FLOP/s", source)
    if card.dram_bandwidth is not None:
        theory["dram_bandwidth"] = Value(float(card.dram_bandwidth.value), "B/s", source)
    return theory, f"{peak.words} ({peak.source})" if peak is not None else ""


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


# ---- The GPU of a run, and the precision in which its float32 really ran --------------------------------------------

DEFAULTS = {"matmul": False, "convolution": True}
"""PyTorch's `allow_tf32` of cuBLAS and of cuDNN."""


def gpu_of(info: RunInfo) -> str:
    """The key of the run's GPU among the ceilings: `cuda:0`, `cuda` where its number is not known, '' without one."""
    if not info.target.device.startswith("cuda"):
        return ""
    named = [info.target.spec, *(info.target.devices or ()), info.target.device]
    return next((name for name in named if name.startswith("cuda:")), "cuda")


def tf32_of(info: RunInfo) -> dict[str, bool] | None:
    """Whether products (`matmul`) and convolutions may run as TF32; None where float32 means float32.

    Since Ampere, float32 may run as TF32 on tensor cores, several times faster. A workload that Sonda drives says what
    it wants (`float32` or `tf32`). A program decides for itself; where it does not say, PyTorch's defaults are assumed:
    convolutions as TF32, matrix products not.
    """
    if not gpu_of(info):
        return None
    declared = info.target.tf32
    if declared is not None:
        return {name: declared.get(name, default) for name, default in DEFAULTS.items()}
    return None if info.target.spec else dict(DEFAULTS)


def tf32_note(info: RunInfo, precision: str) -> HeldAgainstTf32 | None:
    """Which peak float32 is held against, where that is not float32's for everything."""
    tf32 = tf32_of(info)
    if precision != "float32" or not tf32 or not any(tf32.values()):
        return None
    return HeldAgainstTf32(tf32["matmul"], tf32["convolution"], info.target.tf32 is None)
