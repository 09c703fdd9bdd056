"""Which of Nsight Compute's metrics become which of Sonda's.

FLOPs are counted as nvprof's were: additions and multiplications once, fused ones twice (NVIDIA's nvprof transition
table); on tensor cores `sm__ops_path_tensor_src_*` counts them itself. All are whole numbers.

Where ncu was asked for the device's peaks too, a launch also has the share of each that it reached. The peak that ncu
gives for tensor cores is that of matrices half of which are zeros by structure, so half of it is the dense one
(on an H200 1,081,344 bf16 FLOP a cycle; its data sheet has 989 dense TFLOP/s at 1.83 GHz, which are 540,672). Double
precision knows no such matrices: 33,792 FLOP a cycle are the data sheet's 67 TFLOP/s at 1.98 GHz, and products reach
93 % of it. Chips before Ampere know none at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from functools import lru_cache

from sonda.imports.ncu.tables import ABOUT, Launch
from sonda.record.quantities import ROOFS, STALLS
from sonda.record.quantities import TENSOR as TYPES

INSTRUCTION = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
SCALAR = {
    "flops_single": ("fadd", "fmul", "ffma"),
    "flops_double": ("dadd", "dmul", "dfma"),
    "flops_half": ("hadd", "hmul", "hfma"),
}
"""Instructions of each precision; the last counts twice."""
TENSOR = re.compile(r"sm__ops_path_tensor_src_((?!.*(?:_sparsity|_realtime))\w+)\.sum")
KINDS = {"fp16_bf16_tf32": "fp16", "fp4_fp6_fp8": "fp8", "fp4_fp6": "fp6"}
"""Counters of several kinds at once, and what they are kept as. Turing multiplies fp16 only."""
PEAK = ".peak_sustained"
"""What a unit can do at most in one cycle of its own."""
SCALAR_PEAK = "sm__sass_thread_inst_executed_op_{}_pred_on.sum.peak_sustained"
SM_CLOCK = "sm__cycles_elapsed.avg.per_second"
MEMORIES = {
    "dram": ("dram__bytes.sum", "dram__cycles_elapsed.avg.per_second"),
    "l2": ("lts__t_bytes.sum", "lts__cycles_elapsed.avg.per_second"),
}
"""Bytes that have a roof, and the clock of the unit that moves them."""
SPARSE = 2
"""The peak of tensor cores in ncu over the dense one, where they know matrices with zeros by structure."""
DENSE_ONLY = "fp64"
FIRST_SPARSE = 8
"""Ampere's compute capability, the whole number."""
LONGEST = 10**15
"""ns that a launch may take; more is no duration."""
DURATION = ("gpu__time_duration.sum", "Duration")
DIRECT = {
    "dram__bytes_read.sum": "dram_read_bytes",
    "dram__bytes_write.sum": "dram_write_bytes",
    "dram__bytes.sum": "dram_bytes",
    "lts__t_bytes.sum": "l2_bytes",
    "l1tex__t_bytes.sum": "l1_bytes",
    "smsp__thread_inst_executed_pipe_xu_pred_on.sum": "special_functions",
    "sm__cycles_elapsed.max": "cycles",
    "sm__cycles_elapsed.avg.per_second": "sm_clock",
    **{f"smsp__warp_issue_stalled_{reason}_per_warp_active.pct": f"stall_{reason}" for reason in STALLS},
    "Elapsed Cycles": "cycles",
    "SM Frequency": "sm_clock",
}
QUIET = re.compile(
    r"(?:device__|launch__|profiler__|nvlink__|c2clink__|numa__|sm__maximum_|smsp__maximum_|.*\.(?:avg|min|max)(?:\.|$)).*"
)
"""What ncu prints unasked: attributes of the device and the launch, and averages of what is counted as a sum."""


def duration(launch: Launch) -> int | None:
    """ns, None where it was not measured."""
    for name in DURATION:
        if name in launch.values and launch.units.get(name) == "ns" and 0 <= launch.values[name] < LONGEST:
            return int(launch.values[name])
    return None


def counted_quantities(launch: Launch) -> dict[str, Decimal]:
    """Sonda's quantities of a launch, each in its own unit; those that cannot be said are not there.

    A sum of which a part is missing is not there: a precision without one of its instructions, and `flops` without a
    precision, or a type of the tensor cores, that was asked for; so are sums of a launch that may have lost a row. What
    was not asked for is no part of it.
    """
    counts: dict[str, Decimal] = {}
    for name, quantity in DIRECT.items():
        if name in launch.values and quantity not in counts:
            counts[quantity] = launch.values[name]
    lacking: set[str] = set()
    for quantity, names in SCALAR.items():
        counters = [INSTRUCTION.format(name) for name in names]
        if all(name in launch.values for name in counters):
            add, multiply, fused = (launch.values[name] for name in counters)
            counts[quantity] = add + multiply + 2 * fused
        elif any(name in launch.values or name in launch.missing for name in counters):
            lacking.add(quantity)
    kinds = tensor_kinds(launch)
    lacking |= {_tensor_quantity(kind) for kind in _tensor_counters(launch.missing).values()}
    lacking |= {_tensor_quantity(kind) for kind in kinds.values() if not _has_quantity(kind)}
    for name, kind in kinds.items():
        quantity = _tensor_quantity(kind)
        if quantity not in lacking and launch.whole:
            counts[quantity] = counts.get(quantity, Decimal(0)) + launch.values[name]
    floating = [value for name, value in counts.items() if name.startswith("flops_tensor_")]
    if floating and not any(name.startswith("flops_tensor_") for name in lacking):
        counts["flops_tensor"] = sum(floating, Decimal(0))
    parts = [counts[name] for name in (*SCALAR, "flops_tensor") if name in counts]
    if parts and launch.whole and not any(name.startswith("flops_") for name in lacking):
        counts["flops"] = sum(parts, Decimal(0))
    return counts


def tensor_kinds(launch: Launch) -> dict[str, str]:
    """The counters of tensor cores that a launch has, and what each multiplies: `bf16`; integers are `int8` and so on.

    Only whole counters: the parts that some chips have beside them would count twice.
    """
    return _tensor_counters(launch.values)


def _tensor_counters(names: Iterable[str]) -> dict[str, str]:
    return {name: kind for name in names if (kind := _tensor_kind(name))}


@lru_cache(maxsize=4096)
def _tensor_kind(name: str) -> str:
    match = TENSOR.fullmatch(name)
    kind = match[1].partition("_dst")[0] if match else ""
    return KINDS.get(kind, kind)


def _has_quantity(kind: str) -> bool:
    """Whether this is something that tensor cores are known to multiply."""
    return kind in TYPES or kind.startswith("int")


def _tensor_quantity(kind: str) -> str:
    return "integer_tensor" if kind.startswith("int") else f"flops_tensor_{kind}"


def peaks(launch: Launch) -> dict[str, Decimal]:
    """The device's own peaks at the clocks of this launch, those that were asked for: FLOP/s by precision, B/s.

    Keys are quantities: `flops_single`, `flops_tensor_bf16` (dense), `dram_bytes`, `l2_bytes`.
    """
    rates: dict[str, Decimal] = {}
    for name, (moved, clock) in MEMORIES.items():
        if moved + PEAK in launch.values and clock in launch.values:
            rates[f"{name}_bytes"] = launch.values[moved + PEAK] * launch.values[clock]
    if SM_CLOCK not in launch.values:
        return rates
    for quantity, names in SCALAR.items():
        if (peak := launch.values.get(SCALAR_PEAK.format(names[-1]))) is not None:
            rates[quantity] = 2 * peak * launch.values[SM_CLOCK]
    for name, kind in tensor_kinds(launch).items():
        if name + PEAK in launch.values and not kind.startswith("int"):
            peak = launch.values[name + PEAK] * launch.values[SM_CLOCK] / _sparsity_factor(launch, kind)
            rates[_tensor_quantity(kind)] = max(peak, rates.get(_tensor_quantity(kind), Decimal(0)))
    return rates


def _sparsity_factor(launch: Launch, kind: str) -> int:
    """What ncu's peak of tensor cores is over the dense one."""
    generation = launch.capability.partition(".")[0]
    before = generation.isdecimal() and int(generation) < FIRST_SPARSE
    return 1 if before or kind == DENSE_ONLY else SPARSE


def roofs(launch: Launch, counts: Mapping[str, Decimal] | None = None) -> dict[str, Decimal]:
    """Share of the device's own peaks that a launch reached, 1 for all of it: `dram_roof`, `l2_roof`, `flops_roof`.

    `counts` is what was counted, where that is known already.

    Units that work side by side are at their own roofs; FLOPs are held against the highest. Missing where a peak, the
    count or the time is; `flops_roof` also where any of the FLOPs are, since they may be what is highest.
    """
    highest, ns = peaks(launch), duration(launch)
    if not ns or not highest:
        return {}
    values = counted_quantities(launch) if counts is None else counts
    reached: dict[str, list[Decimal]] = {name: [] for name in ROOFS}
    for quantity, peak in highest.items():
        if quantity in values and peak > 0:
            name = "flops" if quantity.startswith("flops") else quantity.removesuffix("_bytes")
            if name == "flops" and "flops" not in values:
                continue
            reached[name].append(values[quantity] * 10**9 / (peak * ns))
    return {f"{name}_roof": max(shares) for name, shares in reached.items() if shares}


def is_known(name: str) -> bool:
    """Whether a metric of ncu's ends up in a quantity of Sonda's."""
    return (
        name in DIRECT
        or name in DURATION
        or name.endswith(PEAK)
        or any(name == clock for _, clock in MEMORIES.values())
        or any(_has_quantity(kind) for kind in _tensor_counters([name]).values())
        or any(name == INSTRUCTION.format(word) for names in SCALAR.values() for word in names)
    )


def unknown_metrics(names: Iterable[str]) -> list[str]:
    """Metrics in a file of ncu's that Sonda has no quantity for."""
    return [name for name in names if not is_known(name) and not QUIET.fullmatch(name)]


def precisions(launch: Launch, values: Mapping[str, Decimal]) -> list[str]:
    """What the FLOPs of a launch were counted in, as words: single, double, half, tensor cores' types."""
    scalar = [quantity.removeprefix("flops_") for quantity in SCALAR if quantity in values]
    return scalar + [f"tensor {kind}" for kind in sorted(set(tensor_kinds(launch).values()))]


def is_unasked(name: str) -> bool:
    """Whether ncu prints a metric of its own accord."""
    return name.startswith((*ABOUT, "profiler__"))
