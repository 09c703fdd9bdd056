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
from sonda.analysis.stalls import REASONS
from sonda.analysis.wording import FRAMEWORKS
from sonda.studies.operation_point import OperationPoint

FACTOR = 1.5
NO_REASON = "nothing that was counted explains it"
NO_COUNTS = "why is not known, because nothing was counted in it"
DISTURBED = "; other programs ran meanwhile, and it may be their doing"


@dataclass(frozen=True)
class OutOfLine:
    """A point that its neighbours do not explain, in a sentence."""

    point: OperationPoint
    other: OperationPoint
    """What it was held against."""
    factor: float
    """How many times as fast the other is."""
    sentence: str


def out_of_line(points: Sequence[OperationPoint]) -> tuple[OutOfLine, ...]:
    """Those out of line, the largest factors first."""
    series: dict[tuple[str, str, str, str], list[OperationPoint]] = {}
    pairs: dict[tuple[object, ...], list[OperationPoint]] = {}
    for point in points:
        series.setdefault((point.op, point.on, point.framework, point.precision), []).append(point)
        pairs.setdefault((point.op, point.on, point.precision, point.size), []).append(point)
    found = [one for line in series.values() for one in _over_sizes(sorted(line, key=lambda point: point.size))]
    found += [one for same in pairs.values() for one in _between_frameworks(same)]
    return tuple(sorted(found, key=lambda one: -one.factor))


def _measure(point: OperationPoint) -> float | None:
    return point.rate if point.op == "dot" else point.bandwidth


def _over_sizes(line: list[OperationPoint]) -> list[OutOfLine]:
    found = []
    for place, point in enumerate(line[1:], start=1):
        before, rate = _measure(line[place - 1]), _measure(point)
        if before is None or not rate or before / rate < FACTOR:
            continue
        after = _measure(line[place + 1]) if place + 1 < len(line) else None
        dips = after is not None and after / rate >= FACTOR
        unit = "FLOP/s" if point.op == "dot" else "B/s"
        verb = "dips" if dips else "falls"
        sentence = (
            f"{_who(point)} {verb} to {wording.amount(rate, unit)} at {_size(point)}, {before / rate:.1f} times less "
            f"than at {_size(line[place - 1])} ({wording.amount(before, unit)}): {_why_slower(point, line[place - 1])}"
        )
        found.append(OutOfLine(point, line[place - 1], before / rate, sentence))
    return found


def _between_frameworks(same: list[OperationPoint]) -> list[OutOfLine]:
    """The slowest against the fastest, where they differ enough."""
    fast, slow = min(same, key=lambda point: point.time), max(same, key=lambda point: point.time)
    factor = slow.time / fast.time
    if slow.framework == fast.framework or factor < FACTOR:
        return []
    sentence = (
        f"{slow.op} at {_size(slow)} on {slow.on} takes {factor:.1f} times as long in {FRAMEWORKS[slow.framework]} "
        f"({wording.duration(slow.time)}) as in {FRAMEWORKS[fast.framework]}: {_why_different(slow, fast)}"
    )
    return [OutOfLine(slow, fast, factor, sentence)]


def _who(point: OperationPoint) -> str:
    return f"{point.op} in {FRAMEWORKS[point.framework]} on {point.on}"


def _size(point: OperationPoint) -> str:
    mebibytes = point.size / 2**20
    return f"{mebibytes:g} MiB" if point.size >= 2**20 else f"{point.size:,} B"


def _why_slower(point: OperationPoint, before: OperationPoint) -> str:
    faster = before.bandwidth
    if faster is not None and before.memory and faster > before.memory and before.cache:
        return (
            f"{_size(before)} moved faster than memory gives ({wording.amount(before.memory, 'B/s')}), so it was found "
            f"in the cache of {wording.amount(before.cache, 'B')}; the {wording.amount(point.working, 'B')} that take "
            "turns here are not"
        )
    return (_moved_more(point) or _waits(point) or _unknown(point)) + _doubt(point, before)


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
    waits = _waits(slow)
    said = "; ".join([*reasons, *([waits] if waits else [])])
    return (said or _unknown(slow, fast)) + _doubt(slow, fast)


def _moved_more(point: OperationPoint) -> str:
    """Where the device moved more than operands and result."""
    if point.dram and point.bytes and point.dram / point.bytes >= FACTOR:
        return (
            f"{wording.amount(point.dram, 'B')} of memory were moved for {wording.amount(point.bytes, 'B')} of "
            "operands and result: parts are read more than once"
        )
    return ""


def _waits(point: OperationPoint) -> str:
    if not point.stalls:
        return ""
    said = [f"{wording.percent(share)} {REASONS[reason].meaning} ({reason})" for reason, share in point.stalls.items()]
    return f"its warps wait {', '.join(said[:2])}"
