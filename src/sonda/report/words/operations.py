"""Words for operations of a study that are out of line, and for what explains them."""

from __future__ import annotations

from collections.abc import Sequence

from sonda.analysis import wording
from sonda.analysis.findings import Finding
from sonda.analysis.study_findings import (
    DoesMore,
    FewLoads,
    LeftCache,
    Neighbour,
    OnlyOneUsesTensorCores,
    OtherInstructions,
    RateFalls,
    ReadRepeatedly,
    SlowerFramework,
    Unexplained,
    WaitsMore,
)
from sonda.report import quantities
from sonda.report.words.describe import describe
from sonda.report.words.device import WAITS
from sonda.report.words.names import FRAMEWORKS
from sonda.report.words.numbers import amount, duration, number

DISTURBED = "; other programs ran meanwhile, and it may be their doing"


@describe.register
def _(finding: RateFalls) -> str:
    operation, times = finding.operation, number(finding.rate_before) / number(finding.rate)
    return (
        f"{operation.name} in {FRAMEWORKS[operation.framework]} on {operation.on} "
        f"{'dips' if finding.dips else 'falls'} to {amount(finding.rate)} at {_size(operation.size)}, {times:.1f} "
        f"times less than at {_size(finding.smaller.size)} ({amount(finding.rate_before)}): "
        f"{_causes(finding.causes, finding.disturbed)}"
    )


@describe.register
def _(finding: SlowerFramework) -> str:
    operation = finding.operation
    return (
        f"{operation.name} at {_size(operation.size)} on {operation.on} takes {finding.times:.1f} times as long in "
        f"{FRAMEWORKS[operation.framework]} ({duration(finding.time)}) as in {FRAMEWORKS[finding.faster]}: "
        f"{_causes(finding.causes, finding.disturbed)}"
    )


def _causes(causes: Sequence[Finding], disturbed: bool) -> str:
    return "; ".join(map(describe, causes)) + (DISTURBED if disturbed else "")


def _size(size: int) -> str:
    return f"{size / 2**20:g} MiB" if size >= 2**20 else f"{size:,} B"


def _there(neighbour: Neighbour) -> str:
    return f"in {FRAMEWORKS[neighbour.framework]}" if neighbour.framework else f"at {_size(neighbour.size)}"


# ---- Causes ---------------------------------------------------------------------------------------------------------


@describe.register
def _(finding: LeftCache) -> str:
    return (
        f"{_size(finding.smaller)} moved faster than memory gives ({amount(finding.bandwidth)}), so it was found in "
        f"the cache of {amount(finding.cache)}; the {amount(finding.working)} that take turns here are not"
    )


@describe.register
def _(finding: ReadRepeatedly) -> str:
    return (
        f"{amount(finding.moved)} of memory were moved for {amount(finding.needed)} of operands and result: parts are "
        "read more than once"
    )


@describe.register
def _(finding: OtherInstructions) -> str:
    return (
        f"other code runs here: {quantities.significant(finding.counted)} FLOP are counted for each of the formula, "
        f"{quantities.significant(finding.counted_there)} {_there(finding.neighbour)}"
    )


@describe.register
def _(finding: WaitsMore) -> str:
    waits = [
        f"{wording.percent(stall.share)} {WAITS[stall.reason]} ({stall.reason}), "
        f"{'at most ' if stall.at_most else ''}{wording.percent(stall.share_there)} {_there(finding.neighbour)}"
        for stall in finding.stalls
    ]
    return f"its warps wait {', '.join(waits)}"


@describe.register
def _(finding: FewLoads) -> str:
    there, rows = _there(finding.neighbour), ""
    if finding.odd_row:
        beside = f"; {finding.row_there:,} {there} can" if finding.row_there != finding.odd_row else ""
        rows = f" (rows of {finding.odd_row:,} numbers cannot be loaded in twos or fours{beside})"
    return (
        f"both wait for memory above all, but memory moves {wording.percent(finding.share)} of what it can here and "
        f"{wording.percent(finding.share_there)} {there}: too few loads are under way at once, or each takes longer"
        f"{rows}"
    )


@describe.register
def _(finding: OnlyOneUsesTensorCores) -> str:
    return f"{FRAMEWORKS[finding.framework]} uses tensor cores, the other does not"


@describe.register
def _(finding: DoesMore) -> str:
    verb = "counts" if finding.amount.unit == "FLOP" else "moves"
    return (
        f"{FRAMEWORKS[finding.framework]} {verb} {amount(finding.amount)} where {FRAMEWORKS[finding.other]} {verb} "
        f"{amount(finding.other_amount)}"
    )


@describe.register
def _(finding: Unexplained) -> str:
    if not finding.counted:
        return "why is not known, because nothing was counted in it"
    return "nothing that was counted explains it"
