"""Words for what a study says to try, and for what stands below its table."""

from __future__ import annotations

from collections.abc import Sequence

from sonda.analysis.study_findings import (
    BeganWarm,
    BetterWay,
    DisturbedStudy,
    EnergyCovers,
    LeaveOut,
    OutsidePublished,
    PointsWithoutRun,
    PublishedElsewhere,
    RepeatMore,
    RestedUnseen,
    RunBeside,
    RunsWithoutEnergy,
    SendAtMost,
    SeveralMachines,
    StayWith,
    TakeInstead,
    UnplacedRows,
    WaitedToCool,
)
from sonda.analysis.summary import Value
from sonda.analysis.wording import join
from sonda.report.quantities import ratio, significant, whole
from sonda.report.words.describe import describe
from sonda.report.words.names import at_places

SIGNS = {"others": "they used cores", "runnable": "more was ready to run than there are cores",
         "use": "the program lacked cores", "steal": "the hypervisor took time",
         "throttled": "its limit of CPU time held it up"}  # fmt: skip
"""What tells of a disturbance, in words."""

# ---- What to try: clauses without a full stop -----------------------------------------------------------------------


@describe.register
def _(finding: TakeInstead) -> str:
    ways, first = finding.ways, finding.ways[0]
    where = at_places([way.place for way in ways], finding.places)
    times = _ends([way.times for way in ways])
    return f'take "{first.best}" instead of "{first.other}"{where}: {times} times as fast{_prices(ways)}'


@describe.register
def _(finding: StayWith) -> str:
    others = "the other is" if finding.others == 1 else f"none of {finding.others} others is"
    return f'stay with "{finding.way}"{at_places(finding.at, finding.places)}: {others} faster'


@describe.register
def _(finding: PublishedElsewhere) -> str:
    """`published on K40, ours on cpu`; '' where nothing is known to differ."""
    differs = [f"published on {finding.hardware}, ours on {finding.on}"] if finding.hardware else []
    if finding.changed:
        changed = ", ".join(f"{key}={value}" for key, value in finding.changed)
        differs.append(f"ours at scale {finding.scale}: {changed}")
    return "; ".join(differs)


@describe.register
def _(finding: LeaveOut) -> str:
    effects = ", ".join(dict.fromkeys(map(describe, finding.effects)))
    return f'leave out "{finding.way}"{at_places(finding.at, finding.places)}: {effects}'


@describe.register
def _(finding: RunBeside) -> str:
    return (
        f'run {finding.program} beside "{finding.better}" rather than "{finding.worse}": a step takes '
        f"{ratio(finding.slowdown)} instead of {ratio(finding.worse_slowdown)} times as long as alone"
    )


@describe.register
def _(finding: SendAtMost) -> str:
    return (
        f"send {finding.workload} on {finding.on} at most {significant(finding.rate)} queries/s where answers must "
        f"come within {finding.bound}"
    )


@describe.register
def _(finding: RepeatMore) -> str:
    quiet = " while no other program runs" if finding.disturbed else ""
    repeat, why = 4 * finding.repetitions, "intervals become half as wide"
    if finding.repetitions == 1:
        repeat, why = 3, "one run of each cannot be told from noise"
    return f"measure again with --repeat {repeat}{quiet}: {why}"


def _ends(values: Sequence[Value]) -> str:
    """`1.70 (1.50 to 1.93)` of one, `1.50 to 31.8` of several."""
    sizes = [value.value or 1.0 for value in values]
    if len(values) > 1:
        return _range(sizes)
    low, high = values[0].low, values[0].high
    interval = "" if low is None or high is None or low == high else f" ({ratio(low)} to {ratio(high)})"
    return f"{_digits(sizes[0])}{interval}"


def _prices(of: Sequence[BetterWay]) -> str:
    prices = []
    for name in dict.fromkeys(name for way in of for name, _ in way.costs):
        prices.append(f"{_range([dict(way.costs).get(name, 1.0) for way in of])} times the {name}")
    pairs = [way.accuracy for way in of if way.accuracy is not None]
    if pairs:
        ours, theirs = ([pair[side] for pair in pairs] for side in (0, 1))
        prices.append(f"{_percents(ours)} of the test right instead of {_percents(theirs)}")
    return f", {join(prices)}" if prices else ""


def _percents(values: Sequence[Value]) -> str:
    """`81.2 % (70.0 to 88.9 %)` of one, `70 to 81 %` of several."""
    if len(values) > 1 or values[0].low is None or values[0].high is None:
        return f"{_range([value.value or 0.0 for value in values])} %"
    return f"{_digits(values[0].value or 0.0)} % ({_digits(values[0].low)} to {_digits(values[0].high)} %)"


def _range(values: Sequence[float]) -> str:
    least, most = _digits(min(values)), _digits(max(values))
    return least if least == most else f"{least} to {most}"


def _digits(value: float) -> str:
    """Three digits, and two decimals of what is near 1."""
    return ratio(value) if 0.1 <= value < 10 else f"{value:,.3g}" if value < 1000 else whole(value)


# ---- Notes below the table ------------------------------------------------------------------------------------------


@describe.register
def _(finding: OutsidePublished) -> str:
    printed = f"{finding.low:g} to {finding.high:g} {finding.unit}".rstrip()
    by = f" ({finding.hardware})" if finding.hardware else ""
    ours = ", ".join(f"{where} {significant(value)}" for where, value in finding.ours)
    return f"{finding.figure} is outside the published {printed}{by}: {ours}"


@describe.register
def _(finding: EnergyCovers) -> str:
    how = ", estimated by a power model" if finding.estimated else ""
    lacking = f"; not {', '.join(finding.lacking)}" if finding.lacking else ""
    return f"energy covers {', '.join(finding.covers)}{how}{lacking}"


@describe.register
def _(finding: RunsWithoutEnergy) -> str:
    return f"{finding.lacking} of {finding.runs} energy runs tell no energy: {finding.reason}"


@describe.register
def _(finding: UnplacedRows) -> str:
    return f"{finding.unplaced} of {finding.rows} published rows have no configuration at scale {finding.scale}"


@describe.register
def _(finding: PointsWithoutRun) -> str:
    return f"{finding.lacking} of {finding.points} points have no run; start the study again to try them once more"


@describe.register
def _(finding: SeveralMachines) -> str:
    where = f" of {finding.name}" if finding.name else ""
    kinds = "; ".join(f"{kind}: {count}" for kind, count in finding.kinds)
    return (
        f"runs{where} come from {len(finding.kinds)} kinds of machine ({kinds}), whose times cannot be compared; "
        "measure anew with --again on one of them"
    )


@describe.register
def _(finding: WaitedToCool) -> str:
    return f"before {finding.runs} runs {finding.seconds:.0f} s were waited in all until the machine was cool again"


@describe.register
def _(finding: BeganWarm) -> str:
    return f"{finding.warm} of {finding.runs} runs began warmer than the first: {finding.reason}"


@describe.register
def _(finding: RestedUnseen) -> str:
    return f"{finding.reason}: runs had {finding.seconds:.0f} s of rest between them at most"


@describe.register
def _(finding: DisturbedStudy) -> str:
    by = ", ".join(f"{SIGNS.get(sign, sign)} in {count}" for sign, count in finding.signs)
    return (
        f"{finding.disturbed} of {finding.runs} runs were disturbed by other programs{f' ({by})' if by else ''}; stop "
        "them, then measure anew with --again"
    )
