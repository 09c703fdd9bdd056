"""Points of a study of operations that fall out of line, found by comparing neighbours, and what explains them.

Within one operation over sizes: a rate (bytes a second of operands and result; FLOP/s of dot) that falls by `FACTOR` or
more from one size to the next larger one, or lies that far below both neighbours. Rates that rise with the size are
usual: whatever an operation costs besides its data weighs less and less. Between frameworks: the same operation and
size on the same device takes `FACTOR` times as long or more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sonda.analysis.findings import Finding
from sonda.analysis.study_findings import (
    DoesMore,
    FewLoads,
    GrownStall,
    LeftCache,
    MeasuredOperation,
    Neighbour,
    OnlyOneUsesTensorCores,
    OtherInstructions,
    RateFalls,
    ReadRepeatedly,
    SlowerFramework,
    Unexplained,
    WaitsMore,
)
from sonda.analysis.summary import Value
from sonda.studies.results.operations import OperationPoint
from sonda.workloads.operations.ops import Operations

FACTOR = 1.5
GROWN = 0.05
"""A reason whose share of the warps' cycles is larger by this much waits for more than in the other point."""
OTHER_CODE = 0.05
"""Counted FLOPs for each of the formula that differ by this much come from other instructions."""
MEMORY_WAIT = "long_scoreboard"
MOST_STALLS = 2
"""Stalls of a cause."""


@dataclass(frozen=True)
class Outlier:
    """A point that its neighbours do not explain."""

    point: OperationPoint
    other: OperationPoint
    """What it was held against."""
    factor: float
    """How many times as fast the other is."""
    finding: Finding


def find_outliers(points: Sequence[OperationPoint]) -> tuple[Outlier, ...]:
    """Those out of line, the largest factors first."""
    series: dict[tuple[object, ...], list[OperationPoint]] = {}
    pairs: dict[tuple[object, ...], list[OperationPoint]] = {}
    for point in points:
        work = (point.op, point.inner, point.on, point.precision)
        series.setdefault((*work, point.framework), []).append(point)
        pairs.setdefault((*work, point.size), []).append(point)
    outliers = [
        outlier for line in series.values() for outlier in _over_sizes(sorted(line, key=lambda point: point.size))
    ]
    outliers += [outlier for same in pairs.values() for outlier in _between_frameworks(same)]
    return tuple(sorted(outliers, key=lambda outlier: -outlier.factor))


def _measure(point: OperationPoint) -> float | None:
    return point.rate if point.op == "dot" else point.bandwidth


def _over_sizes(line: list[OperationPoint]) -> list[Outlier]:
    outliers = []
    for place, point in enumerate(line[1:], start=1):
        before, rate = _measure(line[place - 1]), _measure(point)
        if before is None or not rate or before / rate < FACTOR or point.size == line[place - 1].size:
            continue  # of one size there may be several, which take turns with other operations
        after = _measure(line[place + 1]) if place + 1 < len(line) else None
        dips = after is not None and after / rate >= FACTOR
        unit, smaller = "FLOP/s" if point.op == "dot" else "B/s", line[place - 1]
        causes = _why_slower(point, smaller)
        finding = RateFalls(
            _measured(point), Value(rate, unit, "derived"), _measured(smaller), Value(before, unit, "derived"), dips,
            causes, (point.disturbed or smaller.disturbed) and not isinstance(causes[0], LeftCache),
        )  # fmt: skip
        outliers.append(Outlier(point, smaller, before / rate, finding))
    return outliers


def _between_frameworks(same: list[OperationPoint]) -> list[Outlier]:
    """The slowest against the fastest, where they differ enough."""
    fast, slow = min(same, key=lambda point: point.time), max(same, key=lambda point: point.time)
    factor = slow.time / fast.time
    if slow.framework == fast.framework or factor < FACTOR:
        return []
    disturbed = slow.disturbed or fast.disturbed
    time = Value(slow.time, "ns", "measured")
    finding = SlowerFramework(_measured(slow), time, fast.framework, factor, _why_different(slow, fast), disturbed)
    return [Outlier(slow, fast, factor, finding)]


def _measured(point: OperationPoint) -> MeasuredOperation:
    return MeasuredOperation(point.op, point.size, point.framework, point.on)


def _why_slower(point: OperationPoint, before: OperationPoint) -> tuple[Finding, ...]:
    faster, smaller = before.bandwidth, Neighbour(size=before.size)
    if faster is not None and before.memory and faster > before.memory and _cached(before) and not _cached(point):
        memory, cache = Value(before.memory, "B/s", "measured"), Value(before.cache, "B", "counted")
        return (LeftCache(before.size, memory, cache, Value(point.working, "B", "nominal")),)
    causes = (*_moved_more(point), *_other_code(point, before, smaller), *_waits(point, before, smaller))
    return causes or (_unknown(point),)


def _cached(point: OperationPoint) -> bool:
    """Whether all that takes turns in the process fits into the cache."""
    return bool(point.cache) and point.working <= (point.cache or 0.0)


def _unknown(*points: OperationPoint) -> Unexplained:
    return Unexplained(counted=not any(point.missing for point in points))


def _why_different(slow: OperationPoint, fast: OperationPoint) -> tuple[Finding, ...]:
    causes: list[Finding] = []
    if bool(slow.tensor) != bool(fast.tensor):
        causes.append(OnlyOneUsesTensorCores(fast.framework if fast.tensor else slow.framework))
    for unit, ours, theirs in (("FLOP", slow.counted, fast.counted), ("B", slow.dram, fast.dram)):
        if ours and theirs and ours / theirs >= FACTOR:
            amounts = [Value(amount, unit, "counted") for amount in (ours, theirs)]
            causes.append(DoesMore(slow.framework, amounts[0], fast.framework, amounts[1]))
    causes += _waits(slow, fast, Neighbour(framework=fast.framework))
    return tuple(causes) or (_unknown(slow, fast),)


def _moved_more(point: OperationPoint) -> list[Finding]:
    """Where the device moved more than operands and result."""
    if point.dram and point.bytes and point.dram / point.bytes >= FACTOR:
        return [ReadRepeatedly(Value(point.dram, "B", "counted"), Value(point.bytes, "B", "nominal"))]
    return []


def _other_code(point: OperationPoint, before: OperationPoint, neighbour: Neighbour) -> list[Finding]:
    """Where the same formula was counted as other instructions: another kernel was chosen for this size."""
    if not (point.counted and before.counted and point.nominal and before.nominal):
        return []
    ours, theirs = point.counted / point.nominal, before.counted / before.nominal
    return [] if abs(ours - theirs) < OTHER_CODE * theirs else [OtherInstructions(ours, theirs, neighbour)]


def _waits(slow: OperationPoint, fast: OperationPoint, neighbour: Neighbour) -> list[Finding]:
    """What the slow one waits for more than the fast one does; and whether waiting for memory means much of it."""
    grown = tuple(_grown_stalls(slow, fast)[:MOST_STALLS])
    return [*([WaitsMore(grown, neighbour)] if grown else []), *_slack(slow, fast, neighbour)]


def _grown_stalls(slow: OperationPoint, fast: OperationPoint) -> list[GrownStall]:
    """Reasons with a larger share in the slow one, the largest growth first. A share that stayed explains nothing: it
    is as large where the work is done in time."""
    if not slow.stalls or not fast.stalls:
        return []
    least = min(fast.stalls.values())
    stalls = [
        GrownStall(reason, share, fast.stalls.get(reason, least), at_most=reason not in fast.stalls)
        for reason, share in slow.stalls.items()
    ]
    grown = [stall for stall in stalls if stall.share - stall.share_there >= GROWN]
    return sorted(grown, key=lambda stall: stall.share_there - stall.share)


def _slack(slow: OperationPoint, fast: OperationPoint, neighbour: Neighbour) -> list[Finding]:
    """Where both wait for memory above all, and memory could have given more: not its bandwidth holds the slow one up.

    Bytes under way at once are bandwidth times latency (Little's law), so with less bandwidth there are fewer of them,
    or each takes longer. Found only where operands and result come from memory, once each.
    """
    for point in (slow, fast):
        if not point.dram or _moved_more(point) or _cached(point) or next(iter(point.stalls or {}), "") != MEMORY_WAIT:
            return []
    ours, theirs = (_of_memory(point) for point in (slow, fast))
    if ours is None or theirs is None or FACTOR * ours > theirs:
        return []
    return [FewLoads(ours, theirs, neighbour, _odd_row(slow, fast), _row(fast))]


def _odd_row(slow: OperationPoint, fast: OperationPoint) -> int:
    """What may be why: rows of an odd length begin at every alignment, so a kernel that goes by rows loads one number
    at a time. 0 where the fast one goes through rows of an odd length too, by the same framework's code."""
    ours, theirs = _row(slow), _row(fast)
    return 0 if ours % 2 == 0 or (slow.framework == fast.framework and theirs % 2) else ours


def _row(point: OperationPoint) -> int:
    """Numbers in a row of the first operand."""
    return Operations(op=(point.op,), size=point.size, inner=point.inner).operands(point.op)[0][-1]


def _of_memory(point: OperationPoint) -> float | None:
    """Share of the memory's bandwidth that operands and result took."""
    return point.bandwidth / point.memory if point.bandwidth is not None and point.memory else None
