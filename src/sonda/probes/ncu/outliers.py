"""Outlying launches: those whose time their work does not explain. Only their kernels are asked for their stalls."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sonda.record.quantities import ROOFS
from sonda.record.spans import Spans

NEAR = 0.5
"""A launch that reaches half of a roof is explained by it."""
WORTH = 0.01
"""Kernels with a smaller share of the counted time are not worth passes of their own."""
FAR = 2.0
"""A launch that takes twice as long for the same work as its kin is outlying."""
KIN = 3
"""Launches of one kernel that it takes for their median to show what is usual."""
MOST = 12
"""Kernels that are asked for their stalls, those that take longest first: every one costs passes."""


@dataclass(frozen=True)
class OutlyingLaunch:
    """A launch whose time its work does not explain: it is far from every roof, or slower than its kin."""

    row: int
    roof: float | None = None
    """The share of the highest roof that it reaches, where that is what makes it outlying."""
    slowdown: float | None = None
    """How many times as long it takes for its work as its kin, where that is what makes it outlying."""


def find_outlying_launches(spans: Spans) -> tuple[OutlyingLaunch, ...]:
    """Launches that are far from every roof of the device, or slower than other launches of the same kernel.

    Far is less than half of the highest roof. Kernels with less than a hundredth of the counted time are left out, and
    at most a dozen kernels are named, those that take longest.
    """
    time = spans.number("duration").astype(np.float64)
    name = spans.words("name")
    total = time.sum()
    if not total:
        return ()
    codes = name.codes
    by_name = np.bincount(codes, weights=time, minlength=len(name.words))
    worth = [int(code) for code in np.argsort(-by_name, kind="stable") if by_name[code] >= WORTH * total]
    roofs = _highest_roofs(spans)
    outlying: dict[int, list[OutlyingLaunch]] = {}
    for code in worth:
        rows = np.flatnonzero(codes == code)
        for row, slowdown in zip(rows.tolist(), _slower_than_kin(spans, rows).tolist(), strict=True):
            roof = float(roofs[row])
            if roof < NEAR:
                outlying.setdefault(code, []).append(OutlyingLaunch(row, roof=roof))
            elif slowdown >= FAR:
                outlying.setdefault(code, []).append(OutlyingLaunch(row, slowdown=slowdown))
    chosen = [launch for code in list(outlying)[:MOST] for launch in outlying[code]]
    return tuple(sorted(chosen, key=lambda launch: launch.row))


def find_outlying_rows(spans: Spans) -> list[int]:
    """The rows of the outlying launches, in order."""
    return [launch.row for launch in find_outlying_launches(spans)]


def _highest_roofs(spans: Spans) -> np.ndarray:
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
