"""Words for programs side by side."""

from __future__ import annotations

import pytest

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
from sonda.analysis.findings import Finding
from sonda.analysis.summary import Value
from sonda.report.words import describe
from sonda.report.words.corun import times


def ratio(value: float | None, low: float | None = None, high: float | None = None, reason: str = "") -> Value:
    return Value(value, "1", "derived", low, high, reason)


SLOW, CPU = ratio(4.0, 3.9, 4.1), ratio(3.5)
SPEED, FAIR = ratio(1.375, 1.3, 1.4), ratio(0.4, 0.38, 0.41)


@pytest.mark.parametrize(
    ("finding", "words"),
    [
        (
            Interfering("b", "a", SLOW, CPU, True, 3, SPEED, FAIR, True),
            "a slows b most: 4.00x (3.90 to 4.10), of CPU time 3.50x. All 3 together: weighted speed-up 1.38 (1.30 to "
            "1.40) of 3, fairness 0.40 (0.38 to 0.41).",
        ),
        (
            Interfering("b", "a", ratio(4.0), CPU, False, 2, ratio(1.4), ratio(0.4), True),
            "No slowdown of two is beyond doubt; the largest seen is that of b by a: 4.00x. Both together: weighted "
            "speed-up 1.40 of 2, fairness 0.40.",
        ),
        (
            Interfering("b", "a", SLOW, ratio(None), True, 2, ratio(None, reason="too fast"), ratio(None), True),
            "a slows b most: 4.00x (3.90 to 4.10), of CPU time unknown. No weighted speed-up: too fast.",
        ),
        (
            Interfering("b", "a", SLOW, CPU, True, 2, ratio(None, reason="nobody counts"), ratio(None), False),
            "a slows b most: 4.00x (3.90 to 4.10), of CPU time 3.50x.",
        ),
        (FewRepetitions(3), "too few repetitions for an interval: give --repeat 3 or more"),
        (MeasureAgain(), "measure again with a higher --repeat, while no other program runs"),
        (OwnCores((0, 1)), "give each cores of its own with --cores: they take turns on 0, 1"),
        (
            OneAfterTheOther("a", "b", ratio(0.667)),
            "run a and b one after the other: side by side they get 0.67 of that done in the time",
        ),
        (
            LookAtWaiting("a", "b"),
            "look at what a waits for: beside b its steps are not shown to take more CPU time",
        ),
        (
            DivideCache("a", "a=f b=f0", ratio(1.1, 1.0, 1.2)),
            "divide the cache as in a=f b=f0: a is then slowed 1.10x (1.00 to 1.20)",
        ),
        (SweepWays(), "give each a part of the cache: --sweep-ways tries how large"),
        (
            KeepApart("a", "b"),
            "keep b off the caches and the memory of a: on another socket or machine, or at another time",
        ),
    ],
)
def test_each_finding_has_its_words(finding: Finding, words: str) -> None:
    assert describe(finding) == words


def test_a_slowdown_that_is_not_known_is_unknown() -> None:
    assert times(ratio(None)) == "unknown"
