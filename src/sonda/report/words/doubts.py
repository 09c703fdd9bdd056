"""Words for doubts and notes of a measured run: clauses without a full stop."""

from __future__ import annotations

from sonda.analysis import wording
from sonda.analysis.doubts import (
    AboveRoof,
    Covered,
    Drifted,
    EndedEarly,
    FewSteps,
    HeldAgainstTf32,
    InsideFused,
    LayersApart,
    NoisySteps,
    NoRoof,
    NoStepSeen,
    NoTopDown,
    ObservingCost,
    ObservingCostUnknown,
    OneShapeCounted,
    OnlyCounted,
    OnlyWarmup,
    OtherLayers,
    PaddingSkipped,
    ProbeSilent,
    RunFailed,
    SeveralProcesses,
    ShapesAveraged,
    ShapesNotForetold,
    StolenTime,
    ThreadsAssumed,
    UnevenPhases,
    WrongVerdict,
)
from sonda.analysis.rules.advice import Change
from sonda.analysis.statistics import interval_words
from sonda.record.target import NO_STEP_OF_BLOCK
from sonda.report.words.describe import describe
from sonda.report.words.numbers import number, share
from sonda.report.words.remedies import CHANGES

NO_STEP = (
    "no step was seen: nothing that was observed called a module or stepped an optimizer; check that the part that "
    "trains or infers was reached, in a process that was not killed"
)
LEAST_TOLD = 0.0005
"""The share of a step from which on one decimal of a percent says something of it."""


def _of_part(part: str) -> str:
    return f"{part}: " if part else ""


def _exit_code(code: int | None) -> str:
    return f" with exit code {code}" if code else ""


@describe.register
def _(finding: RunFailed) -> str:
    code = _exit_code(finding.exit_code)
    return f"the run failed{code}: only what was seen until then is shown; mend the cause and run it again"


@describe.register
def _(finding: EndedEarly) -> str:
    code = _exit_code(finding.exit_code)
    return f"the program ended early{code}: only what was seen until then is shown; run it again for the whole"


@describe.register
def _(finding: NoStepSeen) -> str:
    return NO_STEP_OF_BLOCK if finding.of_block else NO_STEP


@describe.register
def _(finding: OnlyWarmup) -> str:
    return f"{_of_part(finding.part)}only warm-up steps were seen, and their times are shown; let it run longer"


@describe.register
def _(finding: OnlyCounted) -> str:
    return f"{_of_part(finding.part)}only counted steps were seen, so there are no times; let it run longer"


def _more_steps(wanted: int, by_option: bool) -> str:
    return f"measure more with --steps {wanted}" if by_option else f"let the program run about {wanted} steps"


@describe.register
def _(finding: FewSteps) -> str:
    more = _more_steps(finding.wanted, finding.by_option)
    steps = wording.plural(finding.steps, "step")
    return f"{_of_part(finding.part)}only {steps} after warm-up: too few for a 95 % interval; {more}"


@describe.register
def _(finding: Drifted) -> str:
    change = number(finding.change)
    how = f"was {abs(change):.0%} {'slower' if change > 0 else 'faster'} than".replace("%", " %")
    how = f"took {1 + change:.1f} times as long as" if change > 1 else how
    again = CHANGES[Change.CLOSE_PROGRAMS]
    return f"{_of_part(finding.part)}the second half of the steps {how} the first: {again}"


@describe.register
def _(finding: NoisySteps) -> str:
    noise = number(finding.noise)
    again = CHANGES[Change.CLOSE_PROGRAMS]
    if noise > 1:
        return f"{_of_part(finding.part)}steps differ by more than their median: {again}"
    if finding.wanted:
        again = f"close other programs, or {_more_steps(finding.wanted, finding.by_option)}"
    return f"{_of_part(finding.part)}the step is known only to ±{100 * noise:.0f} %: {again}"


@describe.register
def _(finding: AboveRoof) -> str:
    phases = wording.join(list(finding.phases))
    return f"{_of_part(finding.part)}{phases} ran above the roof: {CHANGES[Change.MEASURE_CEILINGS]}"


@describe.register
def _(finding: NoTopDown) -> str:
    return f"Top-Down is missing: {finding.cause}; {finding.remedy}"


@describe.register
def _(finding: WrongVerdict) -> str:
    return f"the rule {finding.rule} of {finding.origin} gives a {finding.given}, not a Verdict"


@describe.register
def _(finding: ProbeSilent) -> str:
    return f"{finding.probe}: {finding.why}"


@describe.register
def _(finding: UnevenPhases) -> str:
    total = number(finding.total)
    amount = f"{wording.percent(total)} of" if total <= 1 else wording.times(total)
    return (
        f"{_of_part(finding.part)}the phases' medians add up to {amount} the median step: they were slow in different "
        "steps"
    )


@describe.register
def _(finding: NoRoof) -> str:
    return f"percent of roof is missing: {finding.reason}"


@describe.register
def _(finding: ThreadsAssumed) -> str:
    return f"the run does not say its threads: it is held against the ceilings of {finding.threads}"


@describe.register
def _(finding: HeldAgainstTf32) -> str:
    which = [name for name, held in (("products", finding.products), ("convolutions", finding.convolutions)) if held]
    origin = " (PyTorch's default; the program does not say)" if finding.assumed else ""
    return f"float32 {wording.join(which)} are held against the peak of TF32{origin}"


@describe.register
def _(finding: PaddingSkipped) -> str:
    return (
        f"{finding.part}: {share(finding.share)} of the FLOPs multiply the zeros of padding, which libraries skip; "
        "% of roof is of the others"
    )


@describe.register
def _(finding: ObservingCost) -> str:
    amount = f"at least {share(finding.share)}" if number(finding.share) >= LEAST_TOLD else "next to nothing"
    return f"observing took {amount} of the step (derived: layers and phases x their least cost)"


@describe.register
def _(finding: ObservingCostUnknown) -> str:
    return (
        "what observing took of the step is not known: when its cost was measured, at the end, recording was slower "
        "than it can have been in the steps"
    )


@describe.register
def _(finding: StolenTime) -> str:
    return f"the hypervisor gave {share(finding.share)} of the processors' time to others meanwhile"


@describe.register
def _(finding: LayersApart) -> str:
    return (
        f"{_of_part(finding.part)}layers are told apart in {finding.steps} steps of their own, which took "
        f"{wording.times(finding.times)} as long; their times are their shares of the timed phases"
    )


@describe.register
def _(finding: InsideFused) -> str:
    shares = [f"{name} {wording.percent(part)}" for name, part in finding.shares]
    if finding.rest:
        shares.append(f"{wording.percent(finding.rest)} in none of these")
    return f"{_of_part(finding.part)}inside the fused function, {wording.join(shares)}"


@describe.register
def _(finding: OtherLayers) -> str:
    return (
        f"{_of_part(finding.part)}{share(finding.share)} of the steps called other layers than the counted one, whose "
        "FLOPs are shown"
    )


def _steps(covered: Covered) -> str:
    part = f", {wording.percent(covered.steps / covered.of)}" if covered.of else ""
    return f"{covered.steps} of {covered.of} steps{part}"


@describe.register
def _(finding: OneShapeCounted) -> str:
    return (
        f"{_of_part(finding.part)}the steps have several input shapes; FLOPs, rates and roofs are those of the most "
        f"frequent one that was counted ({_steps(finding.covered)})"
    )


@describe.register
def _(finding: ShapesNotForetold) -> str:
    return (
        f"{_of_part(finding.part)}the steps have {finding.shapes} input shapes that were not counted, and nothing "
        f"foretells them; FLOPs are means over the counted steps alone ({_steps(finding.covered)})"
    )


@describe.register
def _(finding: ShapesAveraged) -> str:
    how = f"of which {finding.counted} were counted"
    if finding.foretold:
        how += " and the others follow from their sizes"
    return (
        f"{_of_part(finding.part)}the steps have {finding.shapes} input shapes, {how}; FLOPs are means over "
        f"{_steps(finding.covered)}"
    )


@describe.register
def _(finding: SeveralProcesses) -> str:
    step, spread = finding.step, ""
    if step.low is not None and step.high is not None:
        spread = f", {interval_words(finding.processes)} {step.low / 1e6:.4g} to {step.high / 1e6:.4g} ms"
    return (
        f"{finding.processes} processes: median step {number(step) / 1e6:.4g} ms{spread}; the one in the middle is "
        "shown"
    )
