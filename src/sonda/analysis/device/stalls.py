"""Stalls: what the warps of a kernel wait for. Shares are of the cycles of resident warps, as nvprof printed them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from sonda.analysis.bounds import CEILINGS, BoundedRatio
from sonda.analysis.device.findings import MendStall, WarpsWait
from sonda.analysis.summary import Value
from sonda.record.quantities import ROOFS, STALLS
from sonda.record.spans import Spans

COUNTED = ("flops", "cycles", "dram_bytes", "l2_bytes", *(f"stall_{reason}" for reason in STALLS))
"""One of these is there wherever the counters of a kernel were read."""
MENDABLE = frozenset(STALLS) - {"dispatch_stall", "misc", "not_selected", "selected", "sleeping"}
"""Reasons that something can be done about."""
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
    """The largest reason that is a stall; '' where there is none."""
    roof: float | None = None
    """Share of the device's own peak that these launches came nearest to, weighted by their time; None where no peak is
    known."""

    @property
    def wait(self) -> WarpsWait | None:
        """What its warps wait for most; None where they do not wait."""
        return WarpsWait(self.top, Value(self.shares[self.top], "1", "counted")) if self.top else None

    @property
    def remedy(self) -> MendStall | None:
        """What to try about it; None where nothing is to be mended."""
        return MendStall(self.top) if self.top in MENDABLE else None


def nvprof_shares(shares: Mapping[str, float]) -> dict[str, float]:
    """The same under nvprof's names; a name whose reasons are all missing is missing."""
    by_name = {}
    for name, reasons in NVPROF.items():
        known = [shares[reason] for reason in reasons if reason in shares]
        if known:
            by_name[name] = sum(known)
    return by_name


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
        time, shares = float(duration[mine].sum()), stall_shares(spans, mine)
        of_all = time / total if total else 0.0
        roof = _highest_roof(spans, mine)
        stalls.append(StallRow(name.words[code], len(mine), time, of_all, shares, top_stall(shares), roof))
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
