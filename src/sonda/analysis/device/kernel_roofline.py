"""The roofline of kernels: what was counted in each, against the peak of the unit it used and of each memory level.

A kernel takes at least the largest of FLOPs / peak for every unit it used, DRAM bytes / DRAM's bandwidth and L2 bytes /
L2's bandwidth, because units and memories work side by side (hierarchical roofline: Yang, Kurth and Williams 2020,
doi:10.1002/cpe.5547). Counted FLOPs say in which precision a kernel ran: float32 on tensor cores is TF32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sonda.analysis import reasons
from sonda.analysis.bounds import CEILINGS, BoundedRatio
from sonda.analysis.device.kernels import KernelTotals
from sonda.analysis.roofline import ceilings, full_precision, name_bound
from sonda.analysis.summary import Value, arithmetic_intensity
from sonda.record.machine import Machine

UNITS = {
    "flops_single": "float32", "flops_double": "float64_cores", "flops_half": "float16_cores",
    "flops_tensor_fp64": "float64", "flops_tensor_tf32": "tf32", "flops_tensor_bf16": "bfloat16",
    "flops_tensor_fp16": "float16", "flops_tensor_fp8": "float8", "flops_tensor_fp6": "float6",
    "flops_tensor_fp4": "float4",
}  # fmt: skip
"""Counted quantities, and the precision whose peak they are held against. `_cores` is the same precision outside tensor
cores: an H200 does twice as many float64 FLOPs on them as beside them. Some have no peak that is measured; their
kernels say so."""
LEVELS = {"DRAM": "dram_bytes", "L2": "l2_bytes"}


@dataclass(frozen=True)
class KernelRoof:
    """One kernel by name; amounts are means of a launch."""

    name: str
    launches: int
    time: Value
    """ns."""
    total: float
    """ns of all launches."""
    precision: str
    """Of the unit that takes most of the least time; '' where no FLOPs were counted."""
    flops: Value
    traffic: dict[str, Value]
    """B by memory level: DRAM, L2; those that were counted."""
    achieved: Value
    """FLOP/s."""
    peak: Value
    """1 = the measured peak of the precision."""
    theory: Value
    """1 = the theoretical peak of the precision."""
    bandwidth: dict[str, Value]
    """1 = the measured bandwidth of the level."""
    roof: Value
    """1 = at the roofline of the measured ceilings: least time over the time taken."""
    bound: str
    """compute, DRAM, L2, or '' where nothing explains half of the time."""

    def intensity(self, level: str) -> float | None:
        """FLOP per byte of a memory level; None where one of them is missing, or no byte was moved."""
        moved = self.traffic.get(level)
        return None if moved is None else arithmetic_intensity(self.flops, moved).value


@dataclass(frozen=True)
class Roofs:
    """The ceilings of one GPU, all precisions together."""

    peaks: dict[str, Value]
    """FLOP/s that were measured."""
    theory: dict[str, Value]
    """FLOP/s of the maker's figures."""
    bandwidth: dict[str, Value]
    """B/s by memory level."""
    theory_bandwidth: dict[str, Value]

    def lines(self, precisions: Sequence[str]) -> tuple[tuple[str, Value], ...]:
        """The roofs of a figure with kernels of these precisions; theoretical ones last."""
        drawn = [(f"{name} peak", self.peaks[name]) for name in precisions if name in self.peaks]
        drawn += list(self.bandwidth.items())
        drawn += [(f"{name} peak in theory", self.theory[name]) for name in precisions if name in self.theory]
        return (*drawn, *((f"{level} in theory", value) for level, value in self.theory_bandwidth.items()))


@dataclass(frozen=True)
class KernelRoofline:
    """Kernels, and the ceilings they are held against."""

    rows: tuple[KernelRoof, ...]
    roofs: Roofs


def kernel_roofline(
    kernels: Sequence[KernelTotals], machine: Machine, device: str, precision: str
) -> KernelRoofline | None:
    """The kernels of a run on this GPU; None where nothing was counted in them, or the GPU was not measured."""
    roofs = device_roofs(machine, device) if device and kernels else None
    rows = kernel_roofs(kernels, roofs, precision)
    return KernelRoofline(rows, roofs) if roofs is not None and rows else None


def device_roofs(machine: Machine, device: str) -> Roofs | None:
    """Everything that was measured on a GPU; None where nothing was."""
    table = machine.ceilings.devices if machine.ceilings is not None else {}
    reached = table.get(next(iter(table), "") if device == "cuda" else device)
    if reached is None:
        return None
    peaks: dict[str, Value] = {}
    theory: dict[str, Value] = {}
    memory: dict[str, Value] = {}
    for name in reached.flops:
        roofs, _ = ceilings(machine, None, name, device)
        if roofs is not None:
            peaks[name] = Value(roofs.flops, "FLOP/s", "measured")
            memory |= {"DRAM": roofs.theory["dram_bandwidth"]} if "dram_bandwidth" in roofs.theory else {}
            theory |= {name: roofs.theory["flops"]} if "flops" in roofs.theory else {}
    rates = {"DRAM": reached.dram_bandwidth, "L2": reached.cache_bandwidth}
    bandwidth = {level: Value(float(rate), "B/s", "measured") for level, rate in rates.items() if rate}
    return Roofs(peaks, theory, bandwidth, memory)


def kernel_roofs(kernels: Sequence[KernelTotals], roofs: Roofs | None, precision: str) -> tuple[KernelRoof, ...]:
    """The kernels in which something was counted, longest in all first; none without ceilings.

    `precision` is what the run computes in: it names the tensor cores' work where their counter does not.
    """
    if roofs is None:
        return ()
    roofs_of_kernels = [
        _roof(kernel, roofs, full_precision(precision))
        for kernel in kernels
        if kernel.kind == "kernel" and kernel.total
    ]
    return tuple(roof for roof in roofs_of_kernels if roof is not None)


def _roof(kernel: KernelTotals, roofs: Roofs, precision: str) -> KernelRoof | None:
    per_launch = {
        column.removesuffix(":counted"): amount / kernel.counted[column]
        for column, amount in kernel.metrics.items()
        if column.endswith(":counted") and kernel.counted.get(column)
    }
    work = {UNITS[name]: 0.0 for name in per_launch if name in UNITS}
    for name, amount in per_launch.items():
        if name in UNITS:
            work[UNITS[name]] += amount
    if "flops_tensor" in per_launch and not any(name.startswith("flops_tensor_") for name in per_launch):
        kind = "tf32" if precision == "float32" else precision
        work[kind] = work.get(kind, 0.0) + per_launch["flops_tensor"]
    if "dram_bytes" not in per_launch and {"dram_read_bytes", "dram_write_bytes"} <= set(per_launch):
        per_launch["dram_bytes"] = per_launch["dram_read_bytes"] + per_launch["dram_write_bytes"]
    traffic = {level: Value(per_launch[name], "B", "counted") for level, name in LEVELS.items() if name in per_launch}
    if not work and not traffic:
        return None
    spent = kernel.mean
    limits = {name: 1e9 * amount / (roofs.peaks[name].value or 1.0) for name, amount in work.items()
              if name in roofs.peaks and amount}  # fmt: skip
    # Without a peak for any of them, the precision with most FLOPs still has a name.
    unit = max(limits or work, key=lambda name: limits.get(name, work[name]), default="")
    unit = unit if work.get(unit) else ""
    moving = {level: 1e9 * (moved.value or 0.0) / (roofs.bandwidth[level].value or 1.0)
              for level, moved in traffic.items() if level in roofs.bandwidth}  # fmt: skip
    least = {"compute": max(limits.values(), default=0.0), **moving}
    # The sum over all counted units is the work; each is held against its own peak.
    flops = _flops(per_launch.get("flops"), work)
    roof = _of_ceiling(Value(max(least.values()) / spent, "1", "derived"), reasons.ABOVE_ROOF)
    if not max(least.values()):
        roof = Value(None, "1", "derived", reason=reasons.NO_CEILING_OF_COUNTED)
    return KernelRoof(
        name=kernel.name,
        launches=kernel.launches,
        time=Value(spent, "ns", "measured"),
        total=float(kernel.total),
        precision=unit,
        flops=flops,
        traffic=traffic,
        achieved=_over(flops.value, spent / 1e9, "FLOP/s", flops.reason),
        peak=_of_ceiling(
            _over(limits.get(unit), spent, "1", reasons.NO_PEAK if unit else reasons.NO_FLOPS_IN_KERNEL),
            reasons.ABOVE_ROOF,
        ),
        theory=_theory(
            roofs.theory.get(unit), work.get(unit), spent, reasons.NO_THEORY if unit else reasons.NO_FLOPS_IN_KERNEL
        ),
        bandwidth={
            level: _of_ceiling(Value(time / spent, "1", "derived"), reasons.ABOVE_ROOF)
            for level, time in moving.items()
        },
        roof=roof,
        bound=name_bound(least, spent) if roof.value is not None else "",
    )


def _flops(counted: float | None, work: dict[str, float]) -> Value:
    if counted is None and not work:
        return Value(None, "FLOP", "counted", reason=reasons.NO_FLOPS_IN_KERNEL)
    return Value(counted if counted is not None else sum(work.values()), "FLOP", "counted")


def _theory(peak: Value | None, flops: float | None, spent: float, reason: str) -> Value:
    if peak is None or not peak.value or flops is None:
        return Value(None, "1", "derived", reason=reason)
    return _of_ceiling(Value(flops / peak.value / (spent / 1e9), "1", "derived"), reasons.ABOVE_THEORY)


def _of_ceiling(ratio: Value, reason: str) -> Value:
    return BoundedRatio(ratio, doubt=CEILINGS).value(reason)


def _over(amount: float | None, spent: float, unit: str, reason: str) -> Value:
    if amount is None:
        return Value(None, unit, "derived", reason=reason)
    return Value(amount / spent, unit, "derived")
