"""Words for doubts in a few words: what makes numbers doubtful, without what to do about it.

A kind of finding without words of its own here is said in full. A line of a screen shows as many as fit.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import singledispatch

from sonda.analysis import wording
from sonda.analysis.comparison.findings import DifferingWork, DisturbedRuns, NoInterval, NoisyPart
from sonda.analysis.doubts import (
    AboveRoof,
    Drifted,
    EndedEarly,
    FewSteps,
    NoisySteps,
    NoStepSeen,
    OnlyCounted,
    OnlyWarmup,
    RunFailed,
)
from sonda.analysis.energy.findings import IntegralOff, ThrottledShare
from sonda.analysis.findings import Finding, Remark
from sonda.report.words.describe import describe
from sonda.report.words.names import name_part
from sonda.report.words.numbers import number

MOST_SETTINGS = 3
"""Settings that differ between runs that are named."""
HOPELESS = 10.0
"""A difference of so many times that noise hides it is as good as any."""
SHORTEST_CAUSE = 20
"""Characters that a stored sentence has at least before the colon behind which its remedy stands."""


def brief_doubts(doubts: Iterable[Finding], part: str = "") -> list[str]:
    """Each doubt in a few words, those of the run's first part first: other parts are named."""
    own, others = [], []
    for doubt in doubts:
        of_part = getattr(doubt, "part", "")
        if part and of_part not in ("", part):
            others.append(f"{name_part(of_part)}: {_brief(doubt)}")
        else:
            own.append(_brief(doubt))
    return list(dict.fromkeys([*own, *others]))


@singledispatch
def _brief(finding: Finding) -> str:
    return describe(finding)


@_brief.register
def _(finding: Remark) -> str:
    cause, colon, _ = finding.text.partition(": ")
    return cause if colon and len(cause) >= SHORTEST_CAUSE else finding.text


@_brief.register
def _(finding: RunFailed) -> str:
    return "the run failed" + (f" with exit code {finding.exit_code}" if finding.exit_code else "")


@_brief.register
def _(finding: EndedEarly) -> str:
    return "the program ended early" + (f" with exit code {finding.exit_code}" if finding.exit_code else "")


@_brief.register
def _(finding: NoStepSeen) -> str:
    return "no step was seen"


@_brief.register
def _(finding: OnlyWarmup) -> str:
    return "only warm-up steps were seen"


@_brief.register
def _(finding: OnlyCounted) -> str:
    return "only counted steps were seen, so there are no times"


@_brief.register
def _(finding: FewSteps) -> str:
    return f"only {wording.plural(finding.steps, 'step')}, {finding.wanted} would do"


@_brief.register
def _(finding: Drifted) -> str:
    change = number(finding.change)
    if change > 1:
        return f"the second half of the steps took {wording.times(1 + change)} as long as the first"
    return f"the second half of the steps is {wording.percent(abs(change))} {'slower' if change > 0 else 'faster'}"


@_brief.register
def _(finding: NoisySteps) -> str:
    noise = number(finding.noise)
    return (
        "steps differ by more than their median"
        if noise > 1
        else f"the step is known only to ±{wording.percent(noise)}"
    )


@_brief.register
def _(finding: AboveRoof) -> str:
    return f"{wording.join(list(finding.phases))} ran above the measured roof"


@_brief.register
def _(finding: DifferingWork) -> str:
    names = [setting.name for setting in finding.settings]
    more = [f"{len(names) - MOST_SETTINGS} more settings"] if len(names) > MOST_SETTINGS else []
    return f"the workloads differ in {wording.join([*names[:MOST_SETTINGS], *more])}"


@_brief.register
def _(finding: DisturbedRuns) -> str:
    return f"other programs disturbed {finding.disturbed} of {finding.runs} runs"


@_brief.register
def _(finding: NoisyPart) -> str:
    if finding.least > HOPELESS:
        return "all differences are lost in noise"
    return f"differences below {wording.percent(finding.least)} are lost in noise"


@_brief.register
def _(finding: NoInterval) -> str:
    return finding.reason


@_brief.register
def _(finding: ThrottledShare) -> str:
    return f"{finding.device} was throttled for {wording.percent(finding.share)} of the time"


@_brief.register
def _(finding: IntegralOff) -> str:
    return f"power and energy of {finding.device} disagree"
