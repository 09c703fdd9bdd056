"""Points of a study of operations that fall out of line, found by comparing neighbours, and what explains them.

Within one operation over sizes: a rate (bytes a second of operands and result; FLOP/s of dot) that falls by `FACTOR` or
more from one size to the next larger one, or lies that far below both neighbours. Rates that rise with the size are
usual: whatever an operation costs besides its data weighs less and less. Between frameworks: the same operation and
size on the same device takes `FACTOR` times as long or more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sonda.analysis import wording
from sonda.analysis.device.stalls import REASONS
from sonda.analysis.wording import FRAMEWORKS
from sonda.studies.results.operations import OperationPoint
from sonda.workloads.operations.ops import Operations

FACTOR = 1.5
GROWN = 0.05
"""A reason whose share of the warps' cycles is larger by this much waits for more than in the other point."""
OTHER_CODE = 0.05
"""Counted FLOPs for each of the formula that differ by this much come from other instructions."""
MEMORY_WAIT = "long_scoreboard"
NO_REASON = "nothing that was counted explains it"
NO_COUNTS = "why is not known, because nothing was counted in it"
DISTURBED = "; other programs ran meanwhile, and it may be their doing"


@dataclass(frozen=True)
class Outlier:
    """A point that its neighbours do not explain, in a sentence."""

    point: OperationPoint
    other: OperationPoint
    """What it was held against."""
    factor: float
    """How many times as fast the other is."""
    sentence: str


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
        unit = "FLOP/s" if point.op == "dot" else "B/s"
        verb = "dips" if dips else "falls"
        sentence = (
            f"{_who(point)} {verb} to {wording.amount(rate, unit)} at {_size(point)}, {before / rate:.1f} times less "
            f"than at {_size(line[place - 1])} ({wording.amount(before, unit)}): {_why_slower(point, line[place - 1])}"
        )
        outliers.append(Outlier(point, line[place - 1], before / rate, sentence))
    return outliers


def _between_frameworks(same: list[OperationPoint]) -> list[Outlier]:
    """The slowest against the fastest, where they differ enough."""
    fast, slow = min(same, key=lambda point: point.time), max(same, key=lambda point: point.time)
    factor = slow.time / fast.time
    if slow.framework == fast.framework or factor < FACTOR:
        return []
    sentence = (
        f"{slow.op} at {_size(slow)} on {slow.on} takes {factor:.1f} times as long in {FRAMEWORKS[slow.framework]} "
        f"({wording.duration(slow.time)}) as in {FRAMEWORKS[fast.framework]}: {_why_different(slow, fast)}"
    )
    return [Outlier(slow, fast, factor, sentence)]


def _who(point: OperationPoint) -> str:
    return f"{point.op} in {FRAMEWORKS[point.framework]} on {point.on}"


def _size(point: OperationPoint) -> str:
    mebibytes = point.size / 2**20
    return f"{mebibytes:g} MiB" if point.size >= 2**20 else f"{point.size:,} B"


def _why_slower(point: OperationPoint, before: OperationPoint) -> str:
    faster, there = before.bandwidth, f"at {_size(before)}"
    if faster is not None and before.memory and faster > before.memory and _cached(before) and not _cached(point):
        return (
            f"{_size(before)} moved faster than memory gives ({wording.amount(before.memory, 'B/s')}), so it was found "
            f"in the cache of {wording.amount(before.cache or 0.0, 'B')}; the {wording.amount(point.working, 'B')} "
            "that take turns here are not"
        )
    reasons = [_moved_more(point), _other_code(point, before, there), *_waits(point, before, there)]
    return ("; ".join(filter(None, reasons)) or _unknown(point)) + _doubt(point, before)


def _cached(point: OperationPoint) -> bool:
    """Whether all that takes turns in the process fits into the cache."""
    return bool(point.cache) and point.working <= (point.cache or 0.0)


def _unknown(*points: OperationPoint) -> str:
    return NO_COUNTS if any(point.missing for point in points) else NO_REASON


def _doubt(*points: OperationPoint) -> str:
    return DISTURBED if any(point.disturbed for point in points) else ""


def _why_different(slow: OperationPoint, fast: OperationPoint) -> str:
    reasons = []
    if bool(slow.tensor) != bool(fast.tensor):
        by = FRAMEWORKS[fast.framework if fast.tensor else slow.framework]
        reasons.append(f"{by} uses tensor cores, the other does not")
    for name, unit, ours, theirs in (
        ("counts", "FLOP", slow.counted, fast.counted), ("moves", "B", slow.dram, fast.dram),
    ):  # fmt: skip
        if ours and theirs and ours / theirs >= FACTOR:
            reasons.append(
                f"{FRAMEWORKS[slow.framework]} {name} {wording.amount(ours, unit)} where "
                f"{FRAMEWORKS[fast.framework]} {name} {wording.amount(theirs, unit)}"
            )
    reasons += _waits(slow, fast, f"in {FRAMEWORKS[fast.framework]}")
    return ("; ".join(reasons) or _unknown(slow, fast)) + _doubt(slow, fast)


def _moved_more(point: OperationPoint) -> str:
    """Where the device moved more than operands and result."""
    if point.dram and point.bytes and point.dram / point.bytes >= FACTOR:
        return (
            f"{wording.amount(point.dram, 'B')} of memory were moved for {wording.amount(point.bytes, 'B')} of "
            "operands and result: parts are read more than once"
        )
    return ""


def _other_code(point: OperationPoint, before: OperationPoint, there: str) -> str:
    """Where the same formula was counted as other instructions: another kernel was chosen for this size."""
    if not (point.counted and before.counted and point.nominal and before.nominal):
        return ""
    ours, theirs = point.counted / point.nominal, before.counted / before.nominal
    if abs(ours - theirs) < OTHER_CODE * theirs:
        return ""
    return f"other code runs here: {ours:.3g} FLOP are counted for each of the formula, {theirs:.3g} {there}"


def _waits(slow: OperationPoint, fast: OperationPoint, there: str) -> list[str]:
    """What the slow one waits for more than the fast one does; and whether waiting for memory means much of it."""
    grown = _grown_stalls(slow, fast)
    sentences = [
        f"{wording.percent(share)} {REASONS[reason].meaning} ({reason}), {less}{wording.percent(before)} {there}"
        for reason, share, before, less in grown[:2]
    ]
    return [*([f"its warps wait {', '.join(sentences)}"] if sentences else []), *_slack(slow, fast, there)]


def _grown_stalls(slow: OperationPoint, fast: OperationPoint) -> list[tuple[str, float, float, str]]:
    """Reasons with a larger share in the slow one, the largest growth first: share, the other's, and 'at most ' where
    only the largest of the other's are known and this is not among them. A share that stayed explains nothing: it is
    as large where the work is done in time."""
    if not slow.stalls or not fast.stalls:
        return []
    least = min(fast.stalls.values())
    changes = [
        (reason, share, fast.stalls.get(reason, least), "" if reason in fast.stalls else "at most ")
        for reason, share in slow.stalls.items()
    ]
    return sorted((change for change in changes if change[1] - change[2] >= GROWN), key=lambda one: one[2] - one[1])


def _slack(slow: OperationPoint, fast: OperationPoint, there: str) -> list[str]:
    """Where both wait for memory above all, and memory could have given more: not its bandwidth holds the slow one up.

    Bytes under way at once are bandwidth times latency (Little's law), so with less bandwidth there are fewer of them,
    or each takes longer. Said only where operands and result come from memory, once each.
    """
    for point in (slow, fast):
        if not point.dram or _moved_more(point) or _cached(point) or next(iter(point.stalls or {}), "") != MEMORY_WAIT:
            return []
    ours, theirs = (_of_memory(point) for point in (slow, fast))
    if ours is None or theirs is None or FACTOR * ours > theirs:
        return []
    return [
        f"both wait for memory above all, but memory moves {wording.percent(ours)} of what it can here and "
        f"{wording.percent(theirs)} {there}: too few loads are under way at once, or each takes longer"
        f"{_odd_rows(slow, fast, there)}"
    ]


def _odd_rows(slow: OperationPoint, fast: OperationPoint, there: str) -> str:
    """What may be why: rows of an odd length begin at every alignment, so a kernel that goes by rows loads one number
    at a time. Nothing where the fast one goes through rows of an odd length too, by the same framework's code."""
    ours, theirs = _row(slow), _row(fast)
    if ours % 2 == 0 or (slow.framework == fast.framework and theirs % 2):
        return ""
    beside = f"; {theirs:,} {there} can" if theirs != ours else ""
    return f" (rows of {ours:,} numbers cannot be loaded in twos or fours{beside})"


def _row(point: OperationPoint) -> int:
    """Numbers in a row of the first operand."""
    return Operations(op=(point.op,), size=point.size, inner=point.inner).operands(point.op)[0][-1]


def _of_memory(point: OperationPoint) -> float | None:
    """Share of the memory's bandwidth that operands and result took."""
    return point.bandwidth / point.memory if point.bandwidth is not None and point.memory else None
