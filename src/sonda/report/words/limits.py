"""Words for what limits a run."""

from __future__ import annotations

from sonda.analysis import wording
from sonda.analysis.bounds import BoundedRatio, Judgement
from sonda.analysis.rules.limit_findings import (
    AboveCeiling,
    BetweenPhases,
    CommunicationBound,
    ComputeBound,
    HeldByOthers,
    HostBound,
    InputBound,
    KernelStalled,
    LongestPhase,
    MemoryBound,
    MinorSteps,
    MoreArithmetic,
    NoClearLimit,
    NoLimitNamed,
    NoSteps,
    NothingNeedless,
    NothingToJudge,
    OfProgram,
    OutsideLayers,
    OverheadBound,
    Oversubscribed,
    Pieces,
    Retraced,
    SlotsLost,
    TooNoisy,
    TransferBound,
    UnevenInput,
    UnexplainedWork,
    WaitsOutside,
)
from sonda.analysis.steps import program as stages
from sonda.analysis.summary import Value
from sonda.report.words.code import describe_lead, name_place
from sonda.report.words.describe import describe
from sonda.report.words.device import kernel_label
from sonda.report.words.names import name_layers
from sonda.report.words.numbers import amount, duration, number, share

MOST_NAMED = 2
"""A sentence that names more than two families names none."""
NEITHER = "Neither arithmetic, memory traffic, overhead nor input explains half of that."
STAGES = {
    stages.START: "starting the interpreter takes",
    stages.IMPORTS: "imports take",
    stages.PREPARATION: "what runs before the first step takes",
    stages.COMPILE: "compilation takes",
    "train": "training takes",
    "validate": "validation takes",
    "test": "the test takes",
    stages.CHECKPOINTS: "saving and loading files of weights takes",
    stages.BETWEEN: "what runs between the steps takes",
    stages.RUNNING: "its own code takes",
    stages.ENDING: "what follows the last step takes",
}


def families(pieces: Pieces) -> str:
    """`the convolutions and linear layers`, `the optimizer`, `12 kinds of layers`."""
    layers = list(dict.fromkeys(name_layers(name) for name in pieces.layers))
    if len(layers) > MOST_NAMED:
        return wording.join([f"{len(layers)} kinds of layers", *_phases(pieces)])
    return wording.join(([f"the {wording.join(layers)}"] if layers else []) + _phases(pieces))


def subject(pieces: Pieces) -> str:
    """`36 normalisations and activations`, `1 linear layer and the optimizer`."""
    count = len(pieces.layers)
    names = list(dict.fromkeys(name_layers(name, count) for name in pieces.layers))
    names = names if len(names) <= MOST_NAMED else ["layers"]
    return wording.join(([f"{count} {wording.join(names)}"] if count else []) + _phases(pieces))


def _phases(pieces: Pieces) -> list[str]:
    return list(dict.fromkeys("the fused function" if name == "fused" else f"the {name}" for name in pieces.phases))


def _operations(count: Value) -> tuple[str, str, str]:
    """So many operations, the ending of their verb, and what stands behind a time of theirs."""
    rounded = round(number(count))
    return wording.plural(rounded, "operation"), *(("s", "") if rounded == 1 else ("", " each"))


def _of_ceiling(reached: BoundedRatio, ceiling: str) -> str:
    """`79 % (74 to 83 %) of this CPU's peak`; of what cannot be told from all of it, that."""
    ratio = reached.value("")
    if reached.judgement is Judgement.AT_BOUND:
        return f"all of {ceiling} as far as can be told"
    return f"{share(ratio)}{wording.interval(ratio.low, ratio.high)} of {ceiling}"


# ---- Limits of the machine -------------------------------------------------------------------------------------------


@describe.register
def _(finding: ComputeBound) -> str:
    peak = f"this {'GPU' if finding.on_gpu else 'CPU'}'s peak"
    return (
        f"Compute-bound in {families(finding.pieces)}: {share(finding.share)} of the step at "
        f"{_of_ceiling(finding.of_peak, peak)}."
    )


@describe.register
def _(finding: MemoryBound) -> str:
    verb = "moves" if len(finding.pieces) == 1 else "move"
    bandwidth = f"{'last-level cache' if finding.cached else 'DRAM'} bandwidth"
    return (
        f"Memory-bound: {subject(finding.pieces)} {verb} {amount(finding.moved)} a step at "
        f"{_of_ceiling(finding.of_bandwidth, bandwidth)}, {share(finding.share)} of the step."
    )


@describe.register
def _(finding: OverheadBound) -> str:
    operations, ending, each = _operations(finding.operations)
    clause = f"cost{ending} {duration(finding.operation_cost)}{each}, however small"
    if finding.of_time.judgement is not Judgement.HOLDS:  # they cannot have cost more than they took
        clause = f"take{ending} {duration(finding.operation_time)}{each}, no longer than small ones do here"
    return (
        f"Overhead-bound in {families(finding.pieces)}: {share(finding.share)} of the step goes to {operations} that "
        f"{clause}."
    )


@describe.register
def _(finding: AboveCeiling) -> str:
    verb, ceiling = ("compute", "peak") if finding.ceiling == "compute" else ("move", "bandwidth")
    verb += "s" if len(finding.pieces) == 1 else ""
    return (
        f"Faster than this machine was measured to be: {subject(finding.pieces)} {verb} {amount(finding.achieved)} "
        f"where the {ceiling} is {amount(finding.limit)}. What limits {share(finding.share)} of the step cannot be "
        "said."
    )


@describe.register
def _(finding: MoreArithmetic) -> str:
    names = dict.fromkeys(name_layers(name, len(finding.layers)) for name in finding.layers)
    times = number(finding.counted) / number(finding.nominal)
    return (
        f"More arithmetic than needed: {wording.join(list(names)[:MOST_NAMED])} count {times:.1f} times the FLOPs of "
        f"their formulas, {share(finding.share)} of the step."
    )


@describe.register
def _(finding: SlotsLost) -> str:
    several = len(finding.phases) > 1
    mostly = f", mostly {finding.inside}" if finding.inside else ""
    return (
        f"Slots are lost: by Top-Down {wording.join(list(finding.phases))} {'are' if several else 'is'} "
        f"{finding.category} ({share(finding.share)} of {'their' if several else 'its'} {finding.slots}){mostly}."
    )


@describe.register
def _(finding: KernelStalled) -> str:
    where = f"{kernel_label(finding.kernel)}, {share(finding.share)} of the step"
    waits = describe(finding.wait)
    if finding.roof is None:
        return f"In {where}, {waits}; how near it comes to the device's peaks is not known."
    return f"Out of line: {where}, reaches {share(finding.roof)} of what the device could do; {waits}."


# ---- The cores that the step runs on ---------------------------------------------------------------------------------


@describe.register
def _(finding: HeldByOthers) -> str:
    cores = "the only core" if finding.cores == 1 else f"{finding.cores} cores"
    return (
        f"Other programs held the cores: they used {number(finding.others):.1f} of {cores}, and threads of the step "
        f"waited for a core {share(finding.share)} of the time that they wanted one. Without them a step of "
        f"{duration(finding.step)} would take {duration(finding.alone)} or less, estimated from that wait."
    )


@describe.register
def _(finding: Oversubscribed) -> str:
    cores, waited = wording.plural(finding.cores, "core"), share(finding.share)
    if finding.processes:
        return (
            f"Too many processes: the program's others hold {cores}, and threads of the step wait {waited} of the time "
            "that they want one."
        )
    return (
        f"Too many threads: {number(finding.ready):.1f} threads share {cores}, and each waits {waited} of the time "
        "that it wants one."
    )


# ---- Limits outside of the work itself -------------------------------------------------------------------------------


@describe.register
def _(finding: InputBound) -> str:
    workers = f" with {wording.plural(finding.workers, 'worker')}" if finding.workers else ""
    return (
        f"Input-bound: waiting for data{workers} takes {share(finding.share)} of the step ({duration(finding.time)})"
        f"{_makes_data(finding)}."
    )


def _makes_data(finding: InputBound | UnevenInput) -> str:
    """The line that makes the data, where it is known."""
    if not finding.leads:
        return ""
    first = finding.leads[0]
    of = " of the workers' time" if finding.in_workers else ""
    return f"; {name_place(first)} takes {share(first.share)}{of}: {describe_lead(first)}"


@describe.register
def _(finding: UnevenInput) -> str:
    return (
        f"Input-bound: waiting for data takes {share(finding.share)} of the time of all steps "
        f"({duration(finding.time)} a step, some wait long and others do not){_makes_data(finding)}."
    )


@describe.register
def _(finding: WaitsOutside) -> str:
    return (
        f"The program waits for {share(finding.share)} of the steps' time ({duration(finding.time)} a step) before its "
        "forward, outside of a loader: for a file, a socket, a lock, a process or a sleep."
    )


@describe.register
def _(finding: CommunicationBound) -> str:
    return (
        "Communication-bound: exchanging with other ranks, or waiting for them, takes "
        f"{share(finding.share)} of the step ({duration(finding.time)})."
    )


@describe.register
def _(finding: TransferBound) -> str:
    whence = " from pageable memory" if finding.pageable else ""
    return (
        f"Transfer-bound: copying input to the GPU{whence} takes {share(finding.share)} of the step "
        f"({duration(finding.time)}), in which it computes nothing."
    )


@describe.register
def _(finding: HostBound) -> str:
    launches = number(finding.launches)
    each, needed = (wording.duration(number(time) / max(launches, 1)) for time in (finding.launching, finding.busy))
    return (
        f"Host-bound: for {share(finding.share)} of the step the GPU waits for the program, which makes "
        f"{launches:,.0f} {'launch' if round(launches) == 1 else 'launches'} in {duration(finding.launching)}, "
        f"{each} each, and the GPU needs {needed} for one."
    )


@describe.register
def _(finding: Retraced) -> str:
    where = f" ({finding.where})" if finding.where else ""
    verb, done = ("Re-compiled", "compiled by XLA") if finding.by_xla else ("Re-traced", "traced")
    most = "up to " if finding.at_most else ""
    of_time = "" if finding.share.value is None else f", {most}{share(finding.share)} of their time"
    return (
        f"{verb}: {finding.function}{where} was {done} {finding.traces} times in {finding.calls} calls{of_time}: "
        f"{_cause(finding)}."
    )


def _cause(finding: Retraced) -> str:
    argument = f"argument {finding.argument}" if finding.argument else "an argument"
    values = ", ".join(finding.examples)
    seen = f": {values}" if values else ""
    return {
        "shape": f"{argument} changes its shape{seen}",
        "type": f"{argument} changes its type{seen}",
        "python": f"{argument} is a value of Python that changes{seen}",
        "object": f"{argument} is another object each time",
        "structure": f"{argument} is there only at times",
        "new": "the function is made anew each time",
    }.get(finding.cause, "its arguments do not tell why")


# ---- The whole program -----------------------------------------------------------------------------------------------


@describe.register
def _(finding: MinorSteps) -> str:
    if finding.part:
        subject = STAGES[finding.part].capitalize()
    else:
        several = f"The {wording.plural(finding.steps, 'step')} take"
        subject = "The only step takes" if finding.steps == 1 else several
    return f"{subject} {share(finding.share)} of the program's {duration(finding.whole)}; {_largest_stage(finding)}."


@describe.register
def _(finding: NoSteps) -> str:
    whole = duration(finding.whole)
    return f"Nothing to judge: no step was seen. Of the program's {whole} {_largest_stage(finding)}."


def _largest_stage(finding: OfProgram) -> str:
    largest = finding.largest
    mostly = f", most of it {largest.package}" if largest.package else ""
    return f"{STAGES[largest.stage]} {share(largest.share)} ({duration(largest.time)}{mostly})"


# ---- No limit --------------------------------------------------------------------------------------------------------


@describe.register
def _(finding: NothingNeedless) -> str:
    return (
        f"Good: nothing needless was found, and {families(finding.pieces)} and what is around them run at "
        f"{share(finding.of_roof)} of what this machine can do."
    )


@describe.register
def _(finding: TooNoisy) -> str:
    low, high = finding.step.low, finding.step.high
    known = f"is known only to ±{share(finding.noise)}"
    if number(finding.noise) > 1 and low is not None and high is not None:
        known = f"lasts anything from {wording.duration(low)} to {wording.duration(high)}"
    elif number(finding.noise) > 1:
        known = "is not known to a factor of two"
    return f"Too noisy to judge: the step {known}."


@describe.register
def _(finding: NothingToJudge) -> str:
    return f"Nothing to judge: {finding.reason}."


@describe.register
def _(finding: NoLimitNamed) -> str:
    longest = f" {describe(finding.longest)}." if finding.longest is not None else ""
    return f"No limit can be named: {finding.reason}.{longest}"


@describe.register
def _(finding: NoClearLimit) -> str:
    if finding.largest is None:
        return "No clear limit: no phase of the step was timed."
    return f"No clear limit: {describe(finding.largest)}. {NEITHER}"


@describe.register
def _(finding: UnexplainedWork) -> str:
    take, reach = ("take", "reach") if finding.pieces.layers else ("takes", "reaches")
    clause = f"{families(finding.pieces)} {take} {share(finding.share)} of the step"
    if finding.of_roof is None:
        return clause
    return f"{clause} and {reach} {'at least ' if finding.at_least else ''}{_of_ceiling(finding.of_roof, 'the roof')}"


@describe.register
def _(finding: OutsideLayers) -> str:
    phases = wording.join(list(finding.phases))
    return f"{share(finding.share)} of the step is code in {phases} outside the layers that were seen"


@describe.register
def _(finding: BetweenPhases) -> str:
    what = "files of weights, which most steps save," if finding.saves_files else "Python code,"
    return f"{share(finding.share)} of the step lies between the phases: {what} and the observing itself"


@describe.register
def _(finding: LongestPhase) -> str:
    return f"{share(finding.share)} of the step is {finding.phase}"
