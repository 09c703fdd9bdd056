"""Words for served traffic."""

from __future__ import annotations

from sonda.analysis import wording
from sonda.analysis.serving import (
    DependentQueries,
    FewOfflineSamples,
    HigherRate,
    JudgedBound,
    LessWaiting,
    LoadgenError,
    LookInside,
    LowerRate,
    NoMlperfResult,
    OfflineRate,
    Overloaded,
    QuotedPercentile,
    SendMore,
)
from sonda.report.words.describe import describe


def _rounded(rate: float | None) -> str:
    """A rate with three digits, and all of them from 100 on."""
    return "–" if rate is None else f"{rate:,.0f}" if rate >= 99.5 else f"{rate:.3g}"


def _name(percentile: float) -> str:
    return f"{100 * percentile:g}th percentile"


@describe.register
def _(finding: OfflineRate) -> str:
    return f"{_rounded(finding.sample_rate.value)} samples/s offline: {finding.samples:,} samples."


@describe.register
def _(finding: QuotedPercentile) -> str:
    asked = finding.asked
    name = _name(asked.percentile)
    if not asked.quotable:
        answered = f"{finding.queries:,} were answered, {asked.missing:,} more are needed"
        return f"Too few queries to quote the {name}: {answered}."
    value = asked.latency if asked.quotable == "counted" else asked.estimate
    how = "counted" if asked.quotable == "counted" else "estimate by early stopping, 99 % confidence"
    return f"{name} of latency {wording.duration(value.value or 0.0)} ({how}, {finding.queries:,} queries)."


@describe.register
def _(finding: JudgedBound) -> str:
    bound, name = finding.bound, _name(finding.percentile)
    rate, limit = f"{_rounded(finding.rate.value)} queries/s", wording.duration(bound.bound.value or 0.0)
    counted = f"{bound.late:,} of {finding.queries:,} were late"
    if bound.allowed < 0:
        return f"Too few queries to show the {name} below {limit}: {counted}, {bound.missing:,} more are needed."
    if bound.held:
        searched = "the highest rate found" if finding.searched else "shown with 99 % confidence"
        return f"{rate} hold {limit} at the {name}, {searched}: {counted}, {bound.allowed:,} may be."
    return f"{rate} are not shown to hold {limit} at the {name}: {counted}, {bound.allowed:,} may be."


@describe.register
def _(finding: Overloaded) -> str:
    return (
        f"overloaded: {_rounded(finding.arrived)} queries/s arrived and {_rounded(finding.answered)} can be answered, "
        "so latencies only say how long it ran; give a lower --qps or a larger --max-batch"
    )


@describe.register
def _(finding: DependentQueries) -> str:
    return (
        f"queries resemble their neighbours, as in a queue: {finding.queries:,} are worth about {finding.worth:,} for "
        "the intervals; MLPerf's counts take all of them as independent"
    )


@describe.register
def _(finding: FewOfflineSamples) -> str:
    return f"MLPerf asks for {finding.asked:,} samples offline; these are {finding.samples:,}"


@describe.register
def _(finding: LoadgenError) -> str:
    return f"LoadGen: {finding.error}"


@describe.register
def _(finding: NoMlperfResult) -> str:
    return "MLPerf's scenarios and counts, not an MLPerf result: model, data and machine are your own"


@describe.register
def _(finding: SendMore) -> str:
    return f"send more: --queries {finding.queries}"


@describe.register
def _(finding: LowerRate) -> str:
    return "a lower --qps; --find-qps finds the highest that holds"


@describe.register
def _(finding: HigherRate) -> str:
    return "a higher --qps; --find-qps finds the highest that holds"


@describe.register
def _(finding: LessWaiting) -> str:
    waited = f"queries wait {wording.duration(finding.wait)} for {wording.duration(finding.inference)} of work"
    return f"a lower --qps, or several in one inference with --max-batch: {waited}"


@describe.register
def _(finding: LookInside) -> str:
    time = "time" if finding.inference is None else wording.duration(finding.inference)
    return f"sonda run {finding.workload}, which tells where the {time} of an inference is spent"
