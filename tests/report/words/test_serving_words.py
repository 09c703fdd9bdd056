"""Words for served traffic."""

from __future__ import annotations

import pytest

from sonda.analysis.findings import Finding
from sonda.analysis.serving import (
    Bound,
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
    Percentile,
    QuotedPercentile,
    SendMore,
)
from sonda.analysis.summary import Value
from sonda.report.words import describe

MS = 1e6


def asked(quotable: str, missing: int = 0) -> Percentile:
    """The 90th percentile: 92 ms as counted, 99 ms as early stopping has it."""
    return Percentile(0.9, Value(92 * MS, "ns", "measured"), Value(99 * MS, "ns", "derived"), 24_576, quotable, missing)


def judged(late: int, allowed: int, held: bool, missing: int = 0, searched: bool = False) -> JudgedBound:
    bound = Bound(Value(20 * MS, "ns", "nominal"), late, allowed, held, missing)
    return JudgedBound(bound, 0.99, Value(50.0, "queries/s", "nominal"), 662, searched)


@pytest.mark.parametrize(
    ("finding", "words"),
    [
        (OfflineRate(Value(400.0, "samples/s", "measured"), 4), "400 samples/s offline: 4 samples."),
        (
            QuotedPercentile(asked("estimate"), 100),
            "90th percentile of latency 99.0 ms (estimate by early stopping, 99 % confidence, 100 queries).",
        ),
        (
            QuotedPercentile(asked("counted"), 30_000),
            "90th percentile of latency 92.0 ms (counted, 30,000 queries).",
        ),
        (
            QuotedPercentile(asked("", 4), 60),
            "Too few queries to quote the 90th percentile: 60 were answered, 4 more are needed.",
        ),
        (
            judged(1, 1, True),
            "50 queries/s hold 20.0 ms at the 99th percentile, shown with 99 % confidence: 1 of 662 were late, 1 may "
            "be.",
        ),
        (
            judged(1, 1, True, searched=True),
            "50 queries/s hold 20.0 ms at the 99th percentile, the highest rate found: 1 of 662 were late, 1 may be.",
        ),
        (
            judged(2, 1, False),
            "50 queries/s are not shown to hold 20.0 ms at the 99th percentile: 2 of 662 were late, 1 may be.",
        ),
        (
            judged(0, -1, False, 1),
            "Too few queries to show the 99th percentile below 20.0 ms: 0 of 662 were late, 1 more are needed.",
        ),
        (
            Overloaded(100.0, 66.67),
            "overloaded: 100 queries/s arrived and 66.7 can be answered, so latencies only say how long it ran; give a "
            "lower --qps or a larger --max-batch",
        ),
        (
            DependentQueries(2000, 40),
            "queries resemble their neighbours, as in a queue: 2,000 are worth about 40 for the intervals; MLPerf's "
            "counts take all of them as independent",
        ),
        (FewOfflineSamples(4), "MLPerf asks for 24,576 samples offline; these are 4"),
        (LoadgenError("no settings"), "LoadGen: no settings"),
        (
            NoMlperfResult(),
            "MLPerf's scenarios and counts, not an MLPerf result: model, data and machine are your own",
        ),
        (SendMore(64), "send more: --queries 64"),
        (LowerRate(), "a lower --qps; --find-qps finds the highest that holds"),
        (HigherRate(), "a higher --qps; --find-qps finds the highest that holds"),
        (
            LessWaiting(3 * MS, MS),
            "a lower --qps, or several in one inference with --max-batch: queries wait 3.0 ms for 1.0 ms of work",
        ),
        (LookInside("mlp", MS), "sonda run mlp, which tells where the 1.0 ms of an inference is spent"),
        (LookInside("mlp", None), "sonda run mlp, which tells where the time of an inference is spent"),
    ],
)
def test_each_finding_has_its_words(finding: Finding, words: str) -> None:
    assert describe(finding) == words
