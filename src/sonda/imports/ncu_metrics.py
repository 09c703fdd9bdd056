"""Which of Nsight Compute's metrics become which of Sonda's.

FLOPs are counted as nvprof's were: additions and multiplications once, fused ones twice (NVIDIA's nvprof transition
table); on tensor cores `sm__ops_path_tensor_src_*` counts them itself. All are whole numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal

from sonda.imports.ncu_table import Launch
from sonda.record.quantity import STALLS

INSTRUCTION = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
SCALAR = {
    "flops_single": ("fadd", "fmul", "ffma"),
    "flops_double": ("dadd", "dmul", "dfma"),
    "flops_half": ("hadd", "hmul", "hfma"),
}
"""Instructions of each precision; the last counts twice."""
TENSOR = re.compile(r"sm__ops_path_tensor_src_((?!.*(?:_sparsity|_realtime))\w+)\.sum")
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


def counted(launch: Launch) -> dict[str, Decimal]:
    """Sonda's quantities of a launch, each in its own unit; those that cannot be said are not there.

    `flops` is the sum of the precisions that were counted whole.
    """
    found: dict[str, Decimal] = {}
    for name, quantity in DIRECT.items():
        if name in launch.values and quantity not in found:
            found[quantity] = launch.values[name]
    for quantity, names in SCALAR.items():
        values = [launch.values.get(INSTRUCTION.format(name)) for name in names]
        if None not in values:
            add, multiply, fused = (value or Decimal(0) for value in values)
            found[quantity] = add + multiply + 2 * fused
    tensor = [value for name, value in launch.values.items() if TENSOR.fullmatch(name)]
    if tensor:
        found["flops_tensor"] = sum(tensor, Decimal(0))
    parts = [found[name] for name in (*SCALAR, "flops_tensor") if name in found]
    if parts:
        found["flops"] = sum(parts, Decimal(0))
    return found


def known(name: str) -> bool:
    """Whether a metric of ncu's ends up in a quantity of Sonda's."""
    return (
        name in DIRECT
        or name in DURATION
        or bool(TENSOR.fullmatch(name))
        or any(name == INSTRUCTION.format(one) for names in SCALAR.values() for one in names)
    )


def not_kept(names: Iterable[str]) -> list[str]:
    """Metrics that somebody asked ncu for and that Sonda has no quantity for."""
    return [name for name in names if not known(name) and not QUIET.fullmatch(name)]


def precisions(launch: Launch) -> list[str]:
    """What the FLOPs of a launch were counted in, as words: single, double, half, tensor cores' types."""
    scalar = [quantity.removeprefix("flops_") for quantity in SCALAR if quantity in counted(launch)]
    kinds = [match[1].partition("_dst")[0] for name in launch.values if (match := TENSOR.fullmatch(name))]
    return scalar + [f"tensor {kind}" for kind in sorted(set(kinds))]
