"""Which kernels are worth asking for their stalls: those whose time their work does not explain."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sonda.record.quantities import ROOFS
from sonda.record.spans import Spans

NEAR = 0.5
"""A launch that reaches half of a roof is explained by it."""
WORTH = 0.01
"""Kernels that take less of the counted time are not worth passes of their own."""
FAR = 2.0
"""A launch that takes twice as long for the same work as its kin is out of line."""
KIN = 3
"""Launches of one kernel from which on their median says what is usual."""
MOST = 12
"""Kernels that are asked for their stalls, those that take longest first: every one costs passes."""


@dataclass(frozen=True)
class OutOfLine:
    """A launch whose time its work does not explain."""

    row: int
    why: str


def out_of_line(spans: Spans) -> tuple[OutOfLine, ...]:
    """Launches that are far from every roof of the device, or slower than other launches of the same kernel.

    Far is less than half of the highest roof, as everywhere. Kernels with less than a hundredth of the counted time are
    left alone, and at most a dozen kernels are named, those that take longest.
    """
    time = spans.number("duration").astype(np.float64)
    name = spans.words("name")
    total = time.sum()
    if not total:
        return ()
    codes = name.codes
    by_name = np.bincount(codes, weights=time, minlength=len(name.words))
    worth = [int(code) for code in np.argsort(-by_name, kind="stable") if by_name[code] >= WORTH * total]
    roofs = _roofs(spans)
    found: dict[int, list[OutOfLine]] = {}
    for code in worth:
        mine = np.flatnonzero(codes == code)
        slow = _slower_than_kin(spans, mine)
        for row, times in zip(mine.tolist(), slow.tolist(), strict=True):
            reached = float(roofs[row])
            if reached < NEAR:
                found.setdefault(code, []).append(
                    OutOfLine(row, f"reaches {100 * reached:.0f} % of what the device could do")
                )
            elif times >= FAR:
                found.setdefault(code, []).append(
                    OutOfLine(row, f"takes {times:.1f} times as long for its work as other launches of this kernel")
                )
    chosen = [one for code in list(found)[:MOST] for one in found[code]]
    return tuple(sorted(chosen, key=lambda one: one.row))


def out_of_line_rows(spans: Spans) -> list[int]:
    """The rows of these, as the probe ncu asks for them."""
    return [one.row for one in out_of_line(spans)]


def _roofs(spans: Spans) -> np.ndarray:
    """The highest roof that every span reached; NaN where none is known."""
    table = np.array([spans.metric(f"{name}_roof", "derived") for name in ROOFS])
    known = ~np.isnan(table).all(axis=0)
    highest = np.full(len(spans), np.nan)
    highest[known] = np.nanmax(table[:, known], axis=0)
    return highest


def _slower_than_kin(spans: Spans, rows: np.ndarray) -> np.ndarray:
    """How many times as long launches of one kernel take for their work as its median launch; NaN where not known.

    Work is bytes and FLOPs: the smaller of the two factors counts, because time need not grow with both.
    """
    time = spans.number("duration")[rows].astype(np.float64)
    factors = np.full(len(rows), np.nan)
    for quantity in ("flops", "l2_bytes", "dram_bytes"):
        work = spans.metric(quantity, "counted")[rows]
        known = (work > 0) & (time > 0)
        if known.sum() < KIN:
            continue
        per = np.full(len(rows), np.nan)
        per[known] = time[known] / work[known]
        factors = np.fmin(factors, per / np.median(per[known]))
    return factors
