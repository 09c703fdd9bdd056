"""Stalls: what the warps of a kernel wait for, in words.

What a reason means follows the Kernel Profiling Guide of Nsight Compute ("Warp Stall Reasons"). Shares are of the
cycles of resident warps, as nvprof printed them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from sonda.analysis import wording
from sonda.analysis.bounds import CEILINGS, BoundedRatio
from sonda.analysis.summary import Value
from sonda.record.quantities import ROOFS, STALLS
from sonda.record.spans import Spans

COUNTED = ("flops", "cycles", "dram_bytes", "l2_bytes", *(f"stall_{reason}" for reason in STALLS))
"""One of these is there wherever the counters of a kernel were read."""
LONGEST_NAME = 80
APPLIED = re.compile(r"(?:[<:]|,\s)(cutlass_\w+|\w*(?:[Ff]unctor\w*|_kernel_cuda|_kernel_impl|Ops))\b")
"""Among a kernel's template arguments, words that name the operation."""


@dataclass(frozen=True)
class Reason:
    """`meaning` goes on after "wait"; `remedy` is what to try, '' where nothing is to be mended."""

    meaning: str
    remedy: str


FUSE = "fuse it with its neighbours (torch.compile, XLA), so that less is read and written"
REASONS = {
    "barrier": Reason("at a barrier for other warps of their block", "smaller blocks, or work split more evenly"),
    "branch_resolving": Reason("for a branch to be decided", "fewer branches inside loops"),
    "dispatch_stall": Reason("because the dispatcher holds them back", ""),
    "drain": Reason("at their end for their stores to leave", FUSE),
    "gmma": Reason("for the tensor cores to take or return their tiles", "larger tiles, or a newer cuBLAS or cuDNN"),
    "imc_miss": Reason("for constants that are not in their cache", "pass fewer different constants"),
    "lg_throttle": Reason("because too many accesses to memory are queued", "contiguous tensors: loads are wide then"),
    "long_scoreboard": Reason("for data from memory", f"{FUSE}; or use narrower types"),
    "math_pipe_throttle": Reason("for an arithmetic unit that is busy", "tensor cores: TF32 or bfloat16"),
    "membar": Reason("at a memory barrier", "fewer atomic operations and fences"),
    "mio_throttle": Reason(
        "because the queue of shared memory and special functions is full", "fewer accesses to shared memory"
    ),
    "misc": Reason("for a reason that the hardware does not name", ""),
    "no_instruction": Reason("for instructions to be fetched", "larger work per launch: small kernels begin cold"),
    "not_selected": Reason("because another warp was chosen: there is enough to do", ""),
    "selected": Reason("for nothing: they issue", ""),
    "short_scoreboard": Reason(
        "for shared memory or special functions", "cheaper functions, or accesses without bank conflicts"
    ),
    "sleeping": Reason("because they were told to sleep", ""),
    "tex_throttle": Reason("because the queue of the texture unit is full", "fewer texture accesses"),
    "wait": Reason("a fixed time for the instruction before", "more independent work in every thread"),
}
NVPROF = {
    "stall_inst_fetch": ("no_instruction",),
    "stall_exec_dependency": ("wait", "short_scoreboard"),
    "stall_memory_dependency": ("long_scoreboard",),
    "stall_memory_throttle": ("lg_throttle", "drain"),
    "stall_constant_memory_dependency": ("imc_miss",),
    "stall_texture": ("tex_throttle",),
    "stall_pipe_busy": ("math_pipe_throttle", "mio_throttle"),
    "stall_sync": ("barrier", "membar"),
    "stall_not_selected": ("not_selected",),
    "stall_sleeping": ("sleeping",),
    "stall_other": ("misc", "dispatch_stall", "branch_resolving"),
}
"""nvprof's names, and the reasons of Nsight Compute that add up to each (NVIDIA's nvprof transition table). `gmma` is
newer than nvprof, and `selected` is no stall."""


@dataclass(frozen=True)
class StallRow:
    """The stalls of one kernel, all launches together."""

    name: str
    launches: int
    """Those whose stalls were counted."""
    time: float
    """ns of these."""
    share: float
    """Of the time of all counted kernels, 0 to 1."""
    shares: dict[str, float]
    """By reason, 0 to 1, largest first; weighted by the time of the launches. They need not add up to 1."""
    top: str
    sentence: str
    remedy: str
    roof: float | None = None
    """Share of the device's own peak that these launches came nearest to, weighted by their time; None where no peak is
    known."""


def nvprof_shares(shares: Mapping[str, float]) -> dict[str, float]:
    """The same under nvprof's names; a name whose reasons are all missing is missing."""
    by_name = {}
    for name, reasons in NVPROF.items():
        known = [shares[reason] for reason in reasons if reason in shares]
        if known:
            by_name[name] = sum(known)
    return by_name


def kernel_label(name: str) -> str:
    """A kernel in a sentence: its function, and what it applies where it is a template for many operations.

    `vectorized_elementwise_kernel (sigmoid_kernel_cuda)`.
    """
    text = name.replace("(anonymous namespace)::", "")
    function = re.split(r"[<(]", text, maxsplit=1)[0].split()
    short = (function[-1] if function else text).rpartition("::")[2][:LONGEST_NAME]
    applied = [word for word in dict.fromkeys(APPLIED.findall(text)) if word != short][:2]
    return f"{short} ({' '.join(applied)})" if applied else short


def counted_rows(spans: Spans) -> np.ndarray:
    """Rows of kernels in which anything was counted."""
    mask = np.zeros(len(spans), dtype=bool)
    for quantity in COUNTED:
        mask |= ~np.isnan(spans.metric(quantity, "counted"))
    kinds = spans.words("kind")
    return np.flatnonzero(mask & (kinds.equal("kernel") | kinds.equal("collective")))


def stall_rows(spans: Spans) -> tuple[StallRow, ...]:
    """Kernels whose stalls were counted, those that take longest first."""
    rows = counted_rows(spans)
    duration = spans.number("duration").astype(np.float64)
    total = float(duration[rows].sum())
    table = [spans.metric(f"stall_{reason}", "counted")[rows] for reason in STALLS]
    has = ~np.isnan(np.array(table)).all(axis=0)
    stalled, name = rows[has], spans.words("name")
    stalls = []
    for code in np.unique(name.codes[stalled]).tolist():
        mine = stalled[name.codes[stalled] == code]
        row = _stall_row(name.words[code], mine, float(duration[mine].sum()), total, stall_shares(spans, mine))
        stalls.append(replace(row, roof=_highest_roof(spans, mine)))
    return tuple(sorted(stalls, key=lambda row: (-row.time, row.name)))


def stall_shares(spans: Spans, rows: np.ndarray) -> dict[str, float]:
    """By reason, 0 to 1, largest first, weighted by the time of these launches; without reasons that none has."""
    duration = spans.number("duration").astype(np.float64)
    shares = {}
    for reason in STALLS:
        values = spans.metric(f"stall_{reason}", "counted")
        known = rows[~np.isnan(values[rows])]
        if len(known):
            weights = duration[known] if duration[known].sum() else np.ones(len(known))
            shares[reason] = float(np.average(values[known], weights=weights)) / 100
    return dict(sorted(shares.items(), key=lambda item: (-item[1], item[0])))


def _highest_roof(spans: Spans, rows: np.ndarray) -> float | None:
    table = np.array([spans.metric(f"{name}_roof", "derived")[rows] for name in ROOFS])
    known = ~np.isnan(table).all(axis=0)
    if not known.any():
        return None
    duration = spans.number("duration")[rows[known]].astype(np.float64)
    weights = duration if duration.sum() else np.ones(len(duration))
    roof = Value(float(np.average(np.nanmax(table[:, known], axis=0), weights=weights)), "1", "derived")
    return BoundedRatio(roof, doubt=CEILINGS).value("").value


def top_stall(shares: Mapping[str, float]) -> str:
    """The largest of them that is a stall; '' where there is none."""
    return next((reason for reason in shares if reason != "selected"), "")


def _stall_row(name: str, rows: np.ndarray, time: float, total: float, ordered: dict[str, float]) -> StallRow:
    top = top_stall(ordered)
    sentence = remedy = ""
    if top:
        sentence = f"warps wait {wording.percent(ordered[top])} of the time {REASONS[top].meaning} ({top})"
        remedy = REASONS[top].remedy
    return StallRow(name, len(rows), time, time / total if total else 0.0, ordered, top, sentence, remedy)
