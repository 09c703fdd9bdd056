"""Words for programs side by side."""

from __future__ import annotations

from sonda.analysis.corun.findings import (
    DivideCache,
    FewRepetitions,
    Interfering,
    KeepApart,
    LookAtWaiting,
    MeasureAgain,
    OneAfterTheOther,
    OwnCores,
    SweepWays,
)
from sonda.analysis.summary import Value
from sonda.report import quantities
from sonda.report.words.describe import describe


def times(value: Value) -> str:
    """`1.42x (1.35 to 1.50)`."""
    if value.value is None:
        return "unknown"
    if value.low is None or value.high is None:
        return quantities.times(value.value)
    return f"{quantities.times(value.value)} ({quantities.ratio(value.low)} to {quantities.ratio(value.high)})"


def _number(value: Value) -> str:
    return times(value).replace("x", "", 1)


@describe.register
def _(finding: Interfering) -> str:
    slowed, by, slowdown = finding.slowed, finding.by, times(finding.slowdown)
    if finding.sure:
        first = f"{by} slows {slowed} most: {slowdown}, of CPU time {times(finding.cpu_slowdown)}"
    else:
        first = f"No slowdown of two is beyond doubt; the largest seen is that of {slowed} by {by}: {slowdown}"
    speed, programs = finding.weighted_speedup, finding.programs
    if speed.value is None:
        return f"{first}. No weighted speed-up: {speed.reason}." if finding.all_known else f"{first}."
    return (
        f"{first}. {'Both' if programs == 2 else f'All {programs}'} together: weighted speed-up "
        f"{_number(speed)} of {programs}, fairness {_number(finding.fairness)}."
    )


@describe.register
def _(finding: FewRepetitions) -> str:
    return f"too few repetitions for an interval: give --repeat {finding.needed} or more"


@describe.register
def _(finding: MeasureAgain) -> str:
    return "measure again with a higher --repeat, while no other program runs"


@describe.register
def _(finding: OwnCores) -> str:
    return f"give each cores of its own with --cores: they take turns on {', '.join(map(str, finding.shared))}"


@describe.register
def _(finding: OneAfterTheOther) -> str:
    part = f"{finding.weighted_speedup.value:.2f}"
    return (
        f"run {finding.slowed} and {finding.by} one after the other: side by side they get {part} of that done in the "
        "time"
    )


@describe.register
def _(finding: LookAtWaiting) -> str:
    return f"look at what {finding.slowed} waits for: beside {finding.by} its steps are not shown to take more CPU time"


@describe.register
def _(finding: DivideCache) -> str:
    return f"divide the cache as in {finding.partition}: {finding.slowed} is then slowed {times(finding.slowdown)}"


@describe.register
def _(finding: SweepWays) -> str:
    return "give each a part of the cache: --sweep-ways tries how large"


@describe.register
def _(finding: KeepApart) -> str:
    return (
        f"keep {finding.by} off the caches and the memory of {finding.slowed}: on another socket or machine, or at "
        "another time"
    )
