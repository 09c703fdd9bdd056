"""Costs: the measured time of a phase or layer beside what was counted in it, and both against the machine."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from sonda.analysis import reasons
from sonda.analysis.bounds import CEILINGS, BoundedRatio
from sonda.analysis.roofline import Ceilings, name_bound
from sonda.analysis.statistics import ENOUGH_STEPS, medians
from sonda.analysis.steps.operation_counts import Tally
from sonda.analysis.summary import Cost, Value

MANY_LACK = 0.25
"""The share of steps without a layer beyond which their median says nothing of it."""
OPERATIONS = 1e6
"""How far the cost of an operation may be off, as a part of it: it is a mean over kinds of operations, and no bound.
What takes less is a small operation all the more."""
NORMAL_95 = 1.96
"""Standard errors on either side of a mean that hold 95 % of a normal distribution."""


def missing(unit: str, source: str, reason: str) -> Value:
    """A number that there is not, and why."""
    return Value(None, unit, source, reason=reason)


def times(table: np.ndarray, effective: int, reason: str, steps: np.ndarray | None = None) -> list[Value]:
    """Median ns per step of every row (rows x steps), with intervals; missing for `reason` where there are no steps.

    With the ns of the `steps` themselves, a row that many steps lack, as a layer of one of several networks that take
    turns, has the share of the median step that it has of all steps together.
    """
    if table.shape[1] == 0:
        return [missing("ns", "measured", reason)] * len(table)
    if table.shape[1] == 1:
        return [Value(float(value), "ns", "measured") for value in table[:, 0]]
    effective = min(effective, table.shape[1])
    middle, low, high = (ends.astype(np.float64) for ends in medians(table.T, effective))
    rare = ((table == 0).mean(axis=1) > MANY_LACK) & table.any(axis=1)
    if steps is not None and rare.any() and steps.any():
        typical = float(np.median(steps) / steps.mean())
        middle[rare] = typical * table[rare].mean(axis=1)
        doubt = typical * NORMAL_95 * table[rare].std(axis=1, ddof=1) / math.sqrt(effective)
        low[rare], high[rare] = np.maximum(middle[rare] - doubt, 0), middle[rare] + doubt
    few = table.shape[1] if table.shape[1] < ENOUGH_STEPS else 0
    return [
        Value(float(value), "ns", "measured", float(least), float(most), few=few)
        for value, least, most in zip(middle, low, high, strict=True)
    ]


@dataclass(frozen=True)
class Scale:
    """What every cost of one part is held against."""

    step: Value
    ceilings: Ceilings | None
    no_ceilings: str
    """Why there are no ceilings."""
    no_counts: str
    """Why nothing was counted, '' where something was."""
    operation_ns: float
    """Cost of one operation in this part."""

    def cost(self, time: Value, tally: Tally | None, alike: Value | None = None, no_work: str = "") -> Cost:
        """The cost of `tally` in `time`. `alike` is the time of the steps that have the counted shape, where that
        differs; `no_work` says why there is no tally though a step was counted."""
        share = time.value / self.step.value if time.value is not None and self.step.value else math.nan
        if tally is None or tally.operations == 0:
            return self._uncounted(time, share, self.no_counts or no_work or reasons.NO_OPERATION_HERE)
        spent = alike if alike is not None else time
        operations = Value(tally.operations, "1", "counted")
        if tally.all_unknown:
            return self._uncounted(time, share, reasons.NO_FORMULA, operations)
        if tally.unknown and not tally.flops:
            # The operations that compute are those without a formula: at least 0 is no number.
            lacking = reasons.COMPUTING_WITHOUT_FORMULA.format(tally.unknown, tally.operations)
            return self._uncounted(time, share, lacking, operations)
        reason = ""
        if tally.unknown:
            reason = reasons.LOWER_BOUND.format(tally.unknown, tally.operations)
        counted = Cost(
            time=time,
            share=share,
            flops=Value(tally.flops, "FLOP", "nominal", reason=reason),
            bytes=Value(tally.bytes, "B", "nominal", reason=reason),
            achieved=_rate(tally.flops, spent, "FLOP/s", reason),
            bandwidth=_rate(tally.bytes, spent, "B/s", reason),
            roof=missing("1", "derived", self.no_ceilings),
            bound="",
            operations=operations,
        )
        if tally.skipped:
            executed = Value(tally.flops - tally.skipped, "FLOP", "nominal", reason=reason)
            counted = replace(counted, executed=executed)
        if self.ceilings is None:
            return counted
        limits = {
            "compute": tally.compute,
            "memory": tally.memory,
            "overhead": tally.operations * self.operation_ns,
        }
        roofline = BoundedRatio(_rate(tally.attainable / 1e9, spent, "1", reason), doubt=CEILINGS)
        broken = [name for name, limit in limits.items() if ceiling_ratio(name, limit, spent).broken]
        if roofline.broken:
            # Operation by operation it is above; both ceilings are then in doubt.
            broken += ["compute", "memory"]
        kept = {name: limit for name, limit in limits.items() if name not in broken}
        largest = max(limits, key=lambda name: limits[name])
        above = max(broken, key=lambda name: limits[name]) if largest in broken else ""
        cached = tally.cached_bytes / tally.bytes if tally.bytes else 0.0
        bound = name_bound(kept, spent.value or 0.0)
        if bound == "overhead" and limits["overhead"] > (spent.value or 0.0):
            # These cost less than operations do on average: a ceiling that explains the time comes before that.
            bound = name_bound({name: kept[name] for name in kept if name != "overhead"}, spent.value or 0.0) or bound
        roof = roofline.value(reasons.ABOVE_ROOF)
        return replace(counted, roof=roof, bound=bound, limits=limits, cached=cached, above="" if bound else above)

    def _uncounted(self, time: Value, share: float, reason: str, operations: Value | None = None) -> Cost:
        return Cost(
            time=time,
            share=share,
            flops=missing("FLOP", "nominal", reason),
            bytes=missing("B", "nominal", reason),
            achieved=missing("FLOP/s", "derived", reason),
            bandwidth=missing("B/s", "derived", reason),
            roof=missing("1", "derived", reason),
            bound="",
            operations=operations or missing("1", "counted", reason),
        )


def ceiling_ratio(name: str, limit: float, time: Value) -> BoundedRatio:
    """The ns that a limit (compute, memory, overhead, or the roof of both) asks for at least, over those taken: no more
    than 1 where the limit is right."""
    return BoundedRatio(_rate(limit / 1e9, time, "1", ""), doubt=OPERATIONS if name == "overhead" else CEILINGS)


def _rate(amount: float, time: Value, unit: str, reason: str) -> Value:
    """`amount` per second of `time`; the ends of the interval change places."""
    if not time.value:
        return missing(unit, "derived", time.reason or reasons.NO_TIME)
    low = amount / time.high * 1e9 if time.high else None
    high = amount / time.low * 1e9 if time.low else None
    return Value(amount / time.value * 1e9, unit, "derived", low, high, reason, time.few)
