"""Words for counters, of processors and of kernels."""

from __future__ import annotations

import pytest

from sonda.analysis.comparison.findings import FoundInRun
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
from sonda.analysis.device.findings import CountedUnlikeNominal
from sonda.analysis.findings import Finding
from sonda.report.words import describe

LONGER = SeriesChange("step time", "ns", 90e6, 120e6, 1 / 3)
FAULTS = SeriesChange("page faults", "1", 0.0, 1200.0, float("inf"))
IPC = SeriesChange("IPC", "1", 1.2, 0.84, -0.3)
BOUND = SeriesChange("backend bound", "of slots", 0.2, 0.4, 1.0)
MEMORY = SeriesChange("resident memory", "B", 1e6, 1.5e6, 0.5)


@pytest.mark.parametrize(
    ("finding", "words"),
    [
        (
            GroupsInTurn("train", 4, 16, 16),
            "train: 4 groups of events took turns, one a step: each number is the median of 16 steps",
        ),
        (
            GroupsInTurn("train", 4, 7, 8),
            "train: 4 groups of events took turns, one a step: each number is the median of 7 to 8 steps",
        ),
        (
            UnjudgedStationarity("train", 32),
            "train: too few steps a group to tell whether the program is stationary; measure at least 32",
        ),
        (
            ScaledCounters("train"),
            "train: counters shared the PMU with others for a part of the time: estimated values are scaled to all of "
            "it",
        ),
        (
            RefusedCounters("train", 0.62),
            "train: some counters counted only 62 % of the time and were not scaled: what they say is left out",
        ),
        (
            NotStationary("train", "", "cycles", 1000, 1200),
            "train: the program is not stationary: groups of events that took turns saw 1,000 and 1,200 cycles in the "
            "step (20 % apart), so what is made of several groups is doubtful; measure more steps of equal work",
        ),
        (
            SlotsDefined("AMD Zen 3", "dispatch slots", True),
            "approximate, not Top-Down: AMD Zen 3, shares of dispatch slots, from counters of hardware",
        ),
        (
            SlotsDefined("Skylake", "slots", False),
            "Top-Down: Skylake, shares of slots, from counters of hardware",
        ),
        (NoLevelTwo("train", "not asked"), "train: level 2 is missing: not asked"),
        (
            JoinedEvents("train"),
            "train: some categories are made of events that were counted in different steps, joined by the cycles",
        ),
        (
            ModelledBy("callgrind", (("I1", "32 KiB 8-way"), ("LL", "24 MiB 12-way")), "", 1, 3),
            "modelled by callgrind: I1 32 KiB 8-way, LL 24 MiB 12-way; unknown code, 1 thread, step 3; no second "
            "level, no prefetching, no write-backs",
        ),
        (
            OtherIsa("AVX512"),
            "natively this machine runs AVX512 code, which valgrind does not know: other instructions than these",
        ),
        (
            StandInCache("LL", "24.75 MiB 11-way", "24 MiB 12-way"),
            "LL is 24.75 MiB 11-way, which callgrind cannot simulate: 24 MiB 12-way stands for it",
        ),
        (
            MarkersTakenOff(4700, 5200),
            "4,700 instructions of observing were taken off at each boundary, 5,200 at a phase's end",
        ),
        (
            BudgetBasis(4, "Skylake", 15.2, 40.0, 200.0, 2.5e9),
            "budget: from 4 instructions a cycle (Skylake) to all stalls one after the other: misprediction 15, last "
            "level 40, memory 200 cycles (measured here, 2.50 GHz); not Top-Down",
        ),
        (SharedTime(2), "native cycles are the time that 2 threads took side by side, not the sum of theirs"),
        (
            RunsOfTheirOwn(),
            "each source counted a run of its own, from start to end: runs differ, and so do their counts",
        ),
        (
            OnlyOursObserved(),
            "the others' runs were not observed, ours was: what observing costs is in the difference",
        ),
        (
            PapiCountsKernel(),
            "papi counts the kernel's cycles and instructions too, the others those of the program only",
        ),
        (
            WaitedForProcessor("train", (("forward", 2e6), ("backward", 3e6))),
            "train: threads waited for a processor in every step, 2.0 ms in forward and 3.0 ms in backward: others "
            "held it, or the threads are too many",
        ),
        (
            ManyFaults("train", "forward", 1200.0, 2e6),
            "train: forward: 1,200 page faults in 2.0 ms: memory is taken from the system and given back in every step",
        ),
        (
            LevelChange("train", 21, None, LONGER, PhaseChange("backward", 30e6, True), (FAULTS,)),
            "train: from step 21 on a step takes 33 % longer (90.0 ms to 120 ms): mostly backward (+30.0 ms) and page "
            "faults rise from 0 to 1,200",
        ),
        (
            LevelChange("train", 12, None, IPC, None, ()),
            "train: from step 12 on IPC falls by 30 % (1.20 to 0.84)",
        ),
        (
            LevelChange("", 5, 2e9, IPC, None, (FAULTS, BOUND, MEMORY, FAULTS, FAULTS)),
            "the program: from 2.0 s on IPC falls by 30 % (1.20 to 0.84): page faults rise from 0 to 1,200, backend "
            "bound rises from 20 % to 40 % and resident memory rises by 50 % (1.0 MB to 1.5 MB), and 2 more",
        ),
        (
            LevelChange("", 1, 0.0, SeriesChange("step time", "ns", 10e6, 30e6, 2.0), None, ()),
            "the program: from the start on a step takes 3.0 times as long (10.0 ms to 30.0 ms)",
        ),
        (
            SeriesDrift("train", "step time", "ns", 100e6, 150e6, 60),
            "train: the time of a step drifts from 100 ms to 150 ms over 60 steps",
        ),
        (SeriesDrift("", "IPC", "1", 2.0, 1.5, 1), "the program: IPC drifts from 2 to 1.50 over 1 interval"),
        (MoreChanges(3), "the program: 3 more changes, marked in the page"),
        (
            FoundInRun("cnn 4", "7f3a", LevelChange("train", 12, None, IPC, None, ())),
            "cnn 4 (7f3a): train: from step 12 on IPC falls by 30 % (1.20 to 0.84)",
        ),
        (
            CountedUnlikeNominal("Sigmoid", True, 1, 67.1e6, 16.8e6),
            "Sigmoid counts 4.0 times its nominal FLOPs (67.1 MFLOP where formulas have 16.8 MFLOP): a function such "
            "as exp is one in a formula and several multiply-adds on the device",
        ),
        (
            CountedUnlikeNominal("Conv2d", True, 2, 900, 2000),
            "2 Conv2d count 0.45 times their nominal FLOPs (900 FLOP where formulas have 2.0 kFLOP): a transform such "
            "as Winograd's needs fewer multiplications",
        ),
        (
            CountedUnlikeNominal("Add", True, 1, 2000, 1000),
            "Add counts 2.0 times its nominal FLOPs (2.0 kFLOP where formulas have 1.0 kFLOP): a + alpha · b is a "
            "multiply-add of two",
        ),
        (
            CountedUnlikeNominal("forward", False, 1, 20000, 1000),
            "forward counts 20 times its nominal FLOPs (20.0 kFLOP where formulas have 1.0 kFLOP)",
        ),
    ],
)
def test_each_finding_has_its_words(finding: Finding, words: str) -> None:
    assert describe(finding) == words
