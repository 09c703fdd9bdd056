"""Words for ranks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sonda.analysis.findings import Finding
from sonda.analysis.ranks.findings import (
    ComparedClocks,
    CriticalRank,
    ImpossibleCollectives,
    LookAtRank,
    MatchedOverGroups,
    MissingRanks,
    NoCollective,
    NoSlowRank,
    PartialGroups,
    SeparateClocks,
    SlowRanks,
    StepsLeftOut,
    UnmarkedSteps,
    UnmatchedCollectives,
    UnnumberedSteps,
    UntoldGroups,
)
from sonda.analysis.ranks.stragglers import GroupTime
from sonda.report.words import describe
from sonda.report.words.ranks import group_words

SLOW = SlowRanks(
    ranks=(2,), machine="", last=2, collectives=2, groups=False, held=3e5, exposed=3e5, hidden=False, share=0.3,
    part="compute", theirs=6e5, others=2.5e5, operation="gemm",
)  # fmt: skip
NOBODY = NoSlowRank(
    wait=5e3, waiting=0.005, exposed=0.004, sometimes=False, hidden=False, latest=0, last=2, collectives=2,
    imbalance=1.01,
)  # fmt: skip


@pytest.mark.parametrize(
    ("finding", "words"),
    [
        (
            NoCollective(4 / 3),
            "No collective is in the traces of all ranks: who waits for whom cannot be said. The busiest rank computes "
            "1.33 times the mean.",
        ),
        (
            UntoldGroups(None),
            "Who waits for whom cannot be said: the job has groups of ranks, and the traces do not say of which group "
            "a collective is.",
        ),
        (
            SLOW,
            "Rank 2 is slow: it comes last to 2 of 2 collectives and keeps all others waiting 300 µs a step, 30 % of "
            "it. It computes 600 µs a step where the others take 250 µs, most of the difference in gemm.",
        ),
        (
            replace(SLOW, groups=True, hidden=True, exposed=1e5, share=0.1, part=""),
            "Rank 2 is slow: it comes last to 2 of 2 collectives of its groups and keeps others waiting 300 µs a step, "
            "of which computing hides all but 100 µs, 10 % of it. Its steps have no part that is longer by as much.",
        ),
        (
            replace(SLOW, ranks=(1, 3), machine="node7", part="input", operation=""),
            "The 2 ranks of node7 are slow: one of them comes last to 2 of 2 collectives, and they keep all others "
            "waiting 300 µs a step, 30 % of it. They wait 600 µs for input a step where the others take 250 µs.",
        ),
        (
            replace(SLOW, ranks=(1, 3), share=1.5, part=""),
            "Ranks 1 and 3 are slow: one of them comes last to 2 of 2 collectives, and they keep all others waiting "
            "300 µs a step. Their steps have no part that is longer by as much.",
        ),
        (
            replace(SLOW, ranks=tuple(range(6)), part=""),
            "6 ranks (0, 1, 2, 3, 4, …) are slow: one of them comes last to 2 of 2 collectives, and they keep all "
            "others waiting 300 µs a step, 30 % of it. Their steps have no part that is longer by as much.",
        ),
        (
            NOBODY,
            "No rank is slow: they wait 0.5 % of a step for each other, and rank 0 comes last most often, to 2 of 2 "
            "collectives. The busiest rank computes 1.01 times the mean.",
        ),
        (
            replace(NOBODY, waiting=0.3, exposed=0.1, sometimes=True, hidden=True, last=0, imbalance=None),
            "No rank is slow all the time: they wait 30 % of a step for each other, computing hides all but 10 %, and "
            "none comes last as far as clocks can tell.",
        ),
        (
            replace(NOBODY, wait=2e6, waiting=1.5, imbalance=None),
            "No rank is slow: they wait 2.0 ms a step for each other, and rank 0 comes last most often, to 2 of 2 "
            "collectives.",
        ),
        (LookAtRank("input"), "look at that rank's input: its files, its loader's processes, its disk"),
        (UnmarkedSteps(), "no step is marked: each rank's whole trace counts as one"),
        (UnnumberedSteps(), "steps have no numbers of their own: they are matched in their order"),
        (
            StepsLeftOut(2),
            "2 steps are not in the traces of all ranks: they are left out of what is said of ranks",
        ),
        (MissingRanks(4, 3), "the job had 4 ranks and 3 are here: the last to come may be another"),
        (
            MatchedOverGroups(2),
            "the job has groups of 2 ranks, and the traces do not say of which group a collective is: these are "
            "matched by their order over all ranks, so that some may be matched wrongly",
        ),
        (PartialGroups(1), "1 groups have ranks that are not here: the last to come may be one of them"),
        (UnmatchedCollectives(3), "3 collectives have no partner on every rank, or lie outside steps: left out"),
        (ImpossibleCollectives(2), "2 collectives would have been left before the last rank came: left out"),
        (
            ComparedClocks(2, 1500),
            "clocks of 2 machines or processes are compared by the ends of collectives; they may still differ by "
            "1.5 µs",
        ),
        (SeparateClocks(2), "2 sets of ranks share no collective: their clocks are not compared"),
        (CriticalRank("train", 0, ""), "train: step, phases, layers and rates are those of rank 0"),
        (
            CriticalRank("train", 0, "cpu/2", alike=True),
            "train: step, phases, layers and rates are those of rank 0 (cpu/2); ranks work alike",
        ),
        (
            CriticalRank("train", 0, "cpu/2", waiting=1, waiting_device="cpu/1", waited=2e6, share=0.7),
            "train: step, phases, layers and rates are those of rank 0 (cpu/2), which works longest; rank 1 (cpu/1) "
            "waits 70 % of its step",
        ),
        (
            CriticalRank("train", 0, "", waiting=1, waited=2e6),
            "train: step, phases, layers and rates are those of rank 0, which works longest; rank 1 waits 2.0 ms a "
            "step",
        ),
    ],
)
def test_each_finding_has_its_words(finding: Finding, words: str) -> None:
    assert describe(finding) == words


def test_a_group_says_who_comes_last() -> None:
    group = GroupTime("2", "tp", (2, 3), 0, 2, 0, True, 3e5, 3e5, 1.5e5, 2, 2, 3e5)
    last = "rank 2 comes last to 2 of 2 collectives and keeps the others waiting 300 µs a step"
    skew = "its ranks come within 300 µs of each other on average"
    assert group_words(group, 2e6) == f"{last}, 15 % of it; {skew}."
    assert group_words(group, 2e9) == f"{skew}; {last}."
    assert group_words(replace(group, latest=-1), 2e6) == f"{skew}, and none comes last as far as clocks can tell."
