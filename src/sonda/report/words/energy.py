"""Words for energy."""

from __future__ import annotations

from sonda.analysis import wording
from sonda.analysis.energy.findings import (
    FinishSooner,
    IntegralOff,
    LostCounters,
    NodeFindings,
    NodesEnergy,
    NoEnergy,
    OnNode,
    ReadingRate,
    SharedMachine,
    SpentEnergy,
    ThrottledShare,
    ThrottledTimes,
    UnreadCounter,
    WholeMachine,
)
from sonda.analysis.summary import Value
from sonda.report.words.describe import describe

INTEGRAL = "by the integral of its power"
INTEGRATED = "the same with GPUs that have no counter, by the integral of their power"


def _between(energy: Value) -> str:
    """` (9.0 J to 21.0 J)`, where an estimate is known to lie between bounds."""
    if energy.source != "estimated" or energy.low is None or energy.high is None:
        return ""
    return f" ({wording.amount(energy.low, 'J')} to {wording.amount(energy.high, 'J')})"


@describe.register
def _(finding: NoEnergy) -> str:
    return f"No energy is known: {finding.reason}."


@describe.register
def _(finding: SpentEnergy) -> str:
    sentences = []
    for total in finding.totals:
        source, joules = total.energy.source, total.energy.value or 0.0
        whole = " of the whole run" if finding.whole_run else ""
        spent = (
            f"{wording.amount(joules, 'J')}{_between(total.energy)} {source} in {wording.duration(finding.time)}{whole}"
        )
        covers = wording.join([*finding.covers, *(f"{device} {INTEGRAL}" for device in total.integrated)])
        if source == "measured":
            watts = wording.amount(joules / (finding.time / 1e9) if finding.time else 0.0, "W")
            sentences.append(f"{spent}, {watts} on average: {covers}; not {', '.join(finding.lacking)}")
        else:
            modelled = f"{finding.modelled}, by a power model"
            sentences.append(f"{spent}: {modelled if source == 'estimated' else covers}")
    return ". ".join(sentences) + "."


@describe.register
def _(finding: NodesEnergy) -> str:
    of = f" of {wording.plural(finding.machines, 'machine')}" if finding.machines < finding.nodes else ""
    nodes = f"{wording.plural(finding.nodes, 'node')}{of}"
    sentences = []
    for total in finding.totals:
        energy = total.energy
        if energy.value is None:
            sentences.append(f"The {energy.source} energy of all nodes is not known: {energy.reason}.")
            continue
        covers, without = INTEGRATED, ""
        if energy.source == "measured":
            covers, without = wording.join(list(finding.covers)), f"; not {', '.join(finding.lacking)}"
        elif energy.source == "estimated":
            covers = f"{finding.modelled}, by a power model"
        sentences.append(
            f"{wording.amount(energy.value, 'J')}{_between(energy)} {energy.source} on {nodes}, "
            f"{wording.duration(finding.time)} of the whole run on the first: {covers}{without}."
        )
    return " ".join(sentences)


@describe.register
def _(finding: NodeFindings) -> str:
    return " ".join(f"Node {node}: {describe(found)}" for node, found in finding.nodes)


@describe.register
def _(finding: OnNode) -> str:
    return f"node {finding.node}: {describe(finding.finding)}"


@describe.register
def _(finding: SharedMachine) -> str:
    return (
        f"nodes {wording.join(list(finding.nodes))} are processes of one machine and read the same sensors, "
        "so its energy counts once"
    )


@describe.register
def _(finding: ReadingRate) -> str:
    read = f"read {finding.count:,} times, every {finding.interval:g} s"
    if finding.share is None:
        return read
    return f"{read}; reading took {wording.percent(finding.share)} of one processor"


@describe.register
def _(finding: UnreadCounter) -> str:
    return f"{finding.counter}: {finding.reason}" + (f"; {finding.remedy}" if finding.remedy else "")


@describe.register
def _(finding: WholeMachine) -> str:
    return "sensors measure the whole machine: what other programs did meanwhile is in these numbers"


@describe.register
def _(finding: LostCounters) -> str:
    return f"the measured total is without {wording.join(list(finding.counters))}: it is too low"


@describe.register
def _(finding: IntegralOff) -> str:
    return (
        f"{finding.device}: the integral of power is {wording.percent(finding.share)} off the energy counter: the load "
        "changes faster than power is sampled"
    )


@describe.register
def _(finding: ThrottledTimes) -> str:
    return f"{finding.device} was throttled {wording.plural(finding.times, 'time')}: too hot"


@describe.register
def _(finding: ThrottledShare) -> str:
    return f"{finding.device} was throttled for {wording.percent(finding.share)} of the time: {finding.reason}"


@describe.register
def _(finding: FinishSooner) -> str:
    idling = finding.idling
    share = f"{wording.percent(idling.value or 0.0)}{wording.interval(idling.low, idling.high)}"
    return f"finish sooner, or do more at once: idling as long would have taken {share} of it"
