"""Words for counters: how numbers were counted, what is doubtful, what changes over time."""

from __future__ import annotations

from sonda.analysis import wording
from sonda.analysis.counters.findings import (
    BudgetBasis,
    GroupsInTurn,
    JoinedEvents,
    LevelChange,
    ManyFaults,
    MarkersTakenOff,
    ModelledBy,
    MoreChanges,
    NoLevelTwo,
    NotStationary,
    OnlyOursObserved,
    OtherIsa,
    PapiCountsKernel,
    PhaseChange,
    RefusedCounters,
    RunsOfTheirOwn,
    ScaledCounters,
    SeriesChange,
    SeriesDrift,
    SharedTime,
    SlotsDefined,
    StandInCache,
    UnjudgedStationarity,
    WaitedForProcessor,
)
from sonda.analysis.counters.summary import is_share
from sonda.report import quantities
from sonda.report.words.describe import describe

# ---- Hardware counters ----------------------------------------------------------------------------------------------


@describe.register
def _(finding: GroupsInTurn) -> str:
    least, most = finding.least, finding.most
    steps = f"{least}" if least == most else f"{least} to {most}"
    return (
        f"{finding.part}: {finding.groups} groups of events took turns, one a step: each number is the median of "
        f"{steps} steps"
    )


@describe.register
def _(finding: UnjudgedStationarity) -> str:
    return (
        f"{finding.part}: too few steps a group to tell whether the program is stationary; measure at least "
        f"{finding.needed}"
    )


@describe.register
def _(finding: ScaledCounters) -> str:
    return (
        f"{finding.part}: counters shared the PMU with others for a part of the time: estimated values are scaled to "
        "all of it"
    )


@describe.register
def _(finding: RefusedCounters) -> str:
    return (
        f"{finding.part}: some counters counted only {wording.percent(finding.share)} of the time and were not scaled: "
        "what they say is left out"
    )


@describe.register
def _(finding: NotStationary) -> str:
    return (
        f"{finding.part}: the program is not stationary: groups of events that took turns saw {finding.low:,.0f} and "
        f"{finding.high:,.0f} {finding.quantity} in {finding.place or 'the step'} "
        f"({wording.percent(finding.high / finding.low - 1)} apart), so what is made of several groups is doubtful; "
        "measure more steps of equal work"
    )


# ---- Top-Down -------------------------------------------------------------------------------------------------------


@describe.register
def _(finding: SlotsDefined) -> str:
    kind = "approximate, not Top-Down" if finding.approximate else "Top-Down"
    return f"{kind}: {finding.name}, shares of {finding.of}, from counters of hardware"


@describe.register
def _(finding: NoLevelTwo) -> str:
    return f"{finding.part}: level 2 is missing: {finding.reason}"


@describe.register
def _(finding: JoinedEvents) -> str:
    return (
        f"{finding.part}: some categories are made of events that were counted in different steps, joined by the cycles"
    )


# ---- A step under callgrind -----------------------------------------------------------------------------------------


@describe.register
def _(finding: ModelledBy) -> str:
    caches = ", ".join(f"{name} {geometry}" for name, geometry in finding.caches)
    return (
        f"modelled by {finding.tool}: {caches}; {finding.isa or 'unknown'} code, "
        f"{wording.plural(finding.threads, 'thread')}, step {finding.step}; "
        "no second level, no prefetching, no write-backs"
    )


@describe.register
def _(finding: OtherIsa) -> str:
    return (
        f"natively this machine runs {finding.native} code, which valgrind does not know: other instructions than these"
    )


@describe.register
def _(finding: StandInCache) -> str:
    return f"{finding.cache} is {finding.geometry}, which callgrind cannot simulate: {finding.simulated} stands for it"


@describe.register
def _(finding: MarkersTakenOff) -> str:
    return (
        f"{finding.boundary:,.0f} instructions of observing were taken off at each boundary, {finding.phase:,.0f} at a "
        "phase's end"
    )


@describe.register
def _(finding: BudgetBasis) -> str:
    return (
        f"budget: from {finding.width} instructions a cycle ({finding.core}) to all stalls one after the other: "
        f"misprediction {finding.mispredicted:.0f}, last level {finding.last_level:.0f}, memory {finding.memory:.0f} "
        f"cycles (measured here, {finding.hertz / 1e9:.2f} GHz); not Top-Down"
    )


@describe.register
def _(finding: SharedTime) -> str:
    return f"native cycles are the time that {finding.threads} threads took side by side, not the sum of theirs"


# ---- Second sources -------------------------------------------------------------------------------------------------


@describe.register
def _(finding: RunsOfTheirOwn) -> str:
    return "each source counted a run of its own, from start to end: runs differ, and so do their counts"


@describe.register
def _(finding: OnlyOursObserved) -> str:
    return "the others' runs were not observed, ours was: what observing costs is in the difference"


@describe.register
def _(finding: PapiCountsKernel) -> str:
    return "papi counts the kernel's cycles and instructions too, the others those of the program only"


# ---- The operating system -------------------------------------------------------------------------------------------


@describe.register
def _(finding: WaitedForProcessor) -> str:
    waits = wording.join([f"{wording.duration(time)} in {name}" for name, time in finding.phases])
    return (
        f"{finding.part}: threads waited for a processor in every step, {waits}: others held it, or the threads are "
        "too many"
    )


@describe.register
def _(finding: ManyFaults) -> str:
    return (
        f"{finding.part}: {finding.phase}: {finding.faults:,.0f} page faults in {wording.duration(finding.time)}: "
        "memory is taken from the system and given back in every step"
    )


# ---- Changes over time ----------------------------------------------------------------------------------------------

STEP = "step time"
"""The name of the series of times of steps."""
PROGRAM = "the program"
MOST_REASONS = 3


@describe.register
def _(finding: LevelChange) -> str:
    """`train: from step 6 on a step takes 30 % longer (10.0 ms to 13.0 ms): mostly backward (+3.0 ms)`."""
    at = f"step {finding.at}"
    if finding.time is not None:
        at = wording.duration(finding.time) if finding.at > 1 else "the start"
    reasons = [_phase(finding.phase)] if finding.phase is not None else []
    reasons += [_change(change) for change in finding.others]
    left = len(reasons) - MOST_REASONS
    because = f": {wording.join(reasons[:MOST_REASONS])}" if reasons else ""
    more = f", and {left} more" if left > 0 else ""
    return f"{finding.of or PROGRAM}: from {at} on {_change(finding.lead)}{because}{more}"


@describe.register
def _(finding: SeriesDrift) -> str:
    first, last = _amount(finding.first, finding.unit), _amount(finding.last, finding.unit)
    name = "the time of a step" if finding.name == STEP else finding.name
    count = wording.plural(finding.count, "step" if finding.of else "interval")
    return f"{finding.of or PROGRAM}: {name} drifts from {first} to {last} over {count}"


@describe.register
def _(finding: MoreChanges) -> str:
    return f"{PROGRAM}: {finding.count} more changes, marked in the page"


def _change(change: SeriesChange) -> str:
    """`IPC falls by 30 % (1.50 to 1.05)`, `page faults rise from 0 to 1,200`."""
    before, after = _amount(change.before, change.unit), _amount(change.after, change.unit)
    if change.name == STEP:
        longer = "longer" if change.after > change.before else "shorter"
        amount = f"{wording.percent(abs(change.relative))} {longer}"
        if change.relative > 1:  # more than twice: a percentage says less than a factor
            amount = f"{wording.times(change.after / change.before)} as long"
        return f"a step takes {amount} ({before} to {after})"
    plural = change.name.split(" per ")[0].endswith("s") and not change.name.endswith("ss")
    verb = ("rise" if plural else "rises") if change.after > change.before else ("fall" if plural else "falls")
    if not change.before or not change.after or change.relative > 1 or is_share(change.unit):
        return f"{change.name} {verb} from {before} to {after}"
    return f"{change.name} {verb} by {wording.percent(abs(change.relative))} ({before} to {after})"


def _phase(phase: PhaseChange) -> str:
    """`mostly backward (+38 ms)`."""
    sign = "+" if phase.difference > 0 else "-"
    return f"{'mostly' if phase.mostly else 'also'} {phase.name} ({sign}{wording.duration(abs(phase.difference))})"


def _amount(value: float, unit: str) -> str:
    if unit == "ns":
        return wording.duration(value)
    if is_share(unit):
        return wording.percent(value)
    if unit in ("B", "cycle") and value >= 1000:
        return wording.amount(value, "B" if unit == "B" else "").strip()
    return quantities.whole(value) if value == round(value) or abs(value) >= 100 else quantities.ratio(value)
