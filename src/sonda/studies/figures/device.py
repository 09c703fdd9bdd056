"""What a study can show of a GPU: how long its kernels took, what was counted in them, what they waited for.

Of a whole step, or of one layer: `kernel_us@dot`, `counted_MFLOP@sigmoid`. `stall_percent` is the largest share of the
cycles of resident warps, `stall_percent@long_scoreboard` that of one reason.
"""

from __future__ import annotations

from collections.abc import Callable

from sonda.analysis import reasons
from sonda.analysis.device.kernel_counters import CountedPlace
from sonda.analysis.device.stalls import top_stall
from sonda.analysis.doubts import why_silent
from sonda.analysis.summary import Summary, Value
from sonda.record.quantities import STALLS


def device_value(summary: Summary, metric: str, path: str = "") -> Value:
    """A metric in the unit in which Sonda keeps it; missing with a reason where the run does not have it."""
    return DEVICE[metric][1](summary, path)


def kernel_time(summary: Summary, path: str) -> Value:
    """ns a step that a GPU worked: the union of its kernels and copies, or the sum of those of one layer."""
    part = summary.parts[0]
    if part.device is None:
        return Value(None, "ns", "measured", reason=_no_kernels(summary))
    if not path:
        return part.device.busy
    layer = next((row for row in part.layers if row.path == path), None)
    return layer.own if layer is not None else Value(None, "ns", "measured", reason=reasons.NO_MODULE)


def _no_kernels(summary: Summary) -> str:
    if not summary.target.device.startswith("cuda"):
        return reasons.NO_GPU
    why = summary.target.no_kernels
    return reasons.KERNELS_SILENT.format(why) if why else reasons.NO_KERNEL_RECORDED


def counted_places(summary: Summary, path: str) -> list[CountedPlace]:
    """Where anything was counted: everywhere, or in one layer."""
    counted = summary.kernel_counters.places if summary.kernel_counters is not None else ()
    return [place for place in counted if not path or (place.layer and place.path == path)]


def why_not_counted(summary: Summary) -> str:
    """Why nothing was: a run's notes name the probes that counted nothing, with their reasons."""
    return why_silent(summary.notes, "ncu") or reasons.NO_NCU


def _sum(unit: str, read: Callable[[CountedPlace], Value]) -> Callable[[Summary, str], Value]:
    def value(summary: Summary, path: str) -> Value:
        values = [read(place) for place in counted_places(summary, path)]
        if not values:
            return Value(None, unit, "counted", reason=why_not_counted(summary))
        lacking = next((value for value in values if value.value is None), None)
        if lacking is not None:
            return Value(None, unit, "counted", reason=lacking.reason)
        return Value(sum(value.value or 0.0 for value in values), unit, "counted")

    return value


counted_flops = _sum("FLOP", lambda place: place.counted)
dram_bytes = _sum("B", lambda place: place.dram)


def counted_rate(summary: Summary, path: str) -> Value:
    """FLOP/s: counted FLOPs over the time of the kernels alone, as the CUDA profiler gave it."""
    flops, time = counted_flops(summary, path), kernel_time(summary, path)
    if flops.value is None or not time.value:
        return Value(None, "FLOP/s", "derived", reason=flops.reason or time.reason or reasons.KERNELS_TOOK_NO_TIME)
    return Value(1e9 * flops.value / time.value, "FLOP/s", "derived")


def _of_peak(ceiling: str, what: str) -> Callable[[Summary, str], Value]:
    def value(summary: Summary, path: str) -> Value:
        rate, peak = counted_rate(summary, path), summary.ceilings.get(ceiling)
        if rate.value is None:
            return Value(None, "1", "derived", reason=rate.reason)
        if not isinstance(peak, Value) or not peak.value:
            return Value(None, "1", "derived", reason=reasons.PEAK_UNKNOWN.format(what))
        return Value(rate.value / peak.value, "1", "derived")

    return value


def _stall(summary: Summary, path: str) -> Value:
    reason, path = (path, "") if path in STALLS else ("", path)
    counted = counted_places(summary, path)
    if not counted:
        return Value(None, "1", "counted", reason=why_not_counted(summary))
    longest = max(counted, key=lambda place: place.time)
    wanted = reason or top_stall(longest.stalls)
    if wanted not in longest.stalls:
        return Value(None, "1", "counted", reason=reasons.NO_STALLS)
    return Value(longest.stalls[wanted], "1", "counted")


DEVICE: dict[str, tuple[str, Callable[[Summary, str], Value]]] = {
    "kernel": ("ns", kernel_time),
    "counted": ("FLOP", counted_flops),
    "counted_rate": ("FLOP/s", counted_rate),
    "dram_bytes": ("B", dram_bytes),
    "peak": ("1", _of_peak("flops", "measured")),
    "theory": ("1", _of_peak("theoretical_flops", "theoretical")),
    "stall": ("1", _stall),
}
"""Metrics of a GPU: the unit in which each is kept, and how it is read off a summary. `peak` and `theory` are counted
FLOP/s over the measured and the theoretical peak of the precision of the run; `stall` is of the longest layer."""
