"""Words for comparisons: doubts and notes, and what options bring in one sentence."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sonda.analysis.comparison.findings import (
    ComparedSetting,
    ComparedSettings,
    DifferentDevices,
    DifferentMachines,
    DifferentTools,
    DifferingClocks,
    DifferingDescriptions,
    DifferingLibrary,
    DifferingSetting,
    DifferingThreads,
    DifferingWork,
    DisturbedRuns,
    ExactCycles,
    IncompleteTrace,
    NoInterval,
    NoisyPart,
    OneProcess,
    OptionEffect,
    OptionOutcome,
    OptionsBring,
    OtherEngines,
    ProductOfParts,
    RemedyOfRuns,
    SimulatedEnergies,
    SimulatedTraffic,
    UnfinishedRuns,
    UntimedParts,
    WidenedIntervals,
)
from sonda.analysis.comparison.optimisations import CombinedOptions, Option, Options
from sonda.analysis.comparison.option_effects import (
    FASTER,
    NOTHING,
    SLOWER,
    UNKNOWN,
    brought_everywhere,
    option_effects,
)
from sonda.analysis.findings import Finding, Remark
from sonda.analysis.study_findings import PublishedElsewhere
from sonda.analysis.summary import Value
from sonda.report.words import describe


def joules(value: float) -> Value:
    return Value(value, "J", "simulated", value / 2, value * 2)


@pytest.mark.parametrize(
    ("finding", "words"),
    [
        (DisturbedRuns(1, 2), "other programs disturbed 1 of 2 runs; stop them and measure again"),
        (
            DifferingWork(tuple(DifferingSetting(name, ("1", "2")) for name in "abcdef")),
            "the workloads differ in a (1, 2), b (1, 2), c (1, 2), d (1, 2) and 2 more: the ratio is not of the same "
            "work",
        ),
        (
            DifferingWork((DifferingSetting("tables", ("9" * 50, "1")),)),
            f"the workloads differ in tables ({'9' * 39}…, 1): the ratio is not of the same work",
        ),
        (
            ComparedSettings((ComparedSetting("precision", "float32", "9" * 50), ComparedSetting("workers", "0", "4"))),
            f"A and B differ in precision (float32, {'9' * 39}…) and workers (0, 4)",
        ),
        (
            DifferingThreads(DifferingSetting("threads", ("1", "2"))),
            "the runs differ in threads (1, 2); give all of them the same --threads",
        ),
        (
            DifferingLibrary(DifferingSetting("torch", ("none", "2.12.0"))),
            "the runs differ in torch (none, 2.12.0); compare within one environment",
        ),
        (DifferentMachines(("X", "Y")), "the runs are from different machines (X, Y); measure both on one"),
        (UnfinishedRuns(("7f3a", "0bad")), "not complete: 7f3a, 0bad; run it again for the whole"),
        (UntimedParts(("validate",)), "validate was not timed in every run and is not compared"),
        (NoInterval("train", "one step"), "train: one step; measure more steps"),
        (
            NoisyPart("train", 0.2),
            "train: too noisy to see differences below 20 %; close other programs, or measure more processes with "
            "--repeat",
        ),
        (
            OneProcess(True),
            "each side has one process: its intervals come from steps only, and how much one process differs from the "
            "next is not seen; measure several with --repeat",
        ),
        (
            WidenedIntervals(True, 100),
            "the intervals of phases and 100 layers are widened so that all of them hold at once (Bonferroni)",
        ),
        (
            WidenedIntervals(True, 0),
            "the intervals of phases are widened so that all of them hold at once (Bonferroni)",
        ),
        (IncompleteTrace("7f3a"), "7f3a is not complete"),
        (DifferentDevices(), "the traces are from different devices"),
        (DifferentTools(), "the runs come from different tools, whose times differ"),
        (
            ExactCycles(),
            "cycles are exact, simulated: a ratio other than 1 is a difference, and there are no intervals",
        ),
        (
            OtherEngines((("maeri", "flexible dense, 256 multipliers"),), (("mesh", "mesh, 16x16"),)),
            "the accelerators have other engines: A has maeri (flexible dense, 256 multipliers), B has mesh (mesh, "
            "16x16)",
        ),
        (
            DifferingDescriptions(tuple((name, "1", "none") for name in "abcdefgh")),
            "the accelerators differ in a (1, none), b (1, none), c (1, none), d (1, none), e (1, none), f (1, none) "
            "and 2 more",
        ),
        (DifferingClocks(1e9, None), "the clocks differ (1 GHz and no clock): the ratios are of cycles, not of times"),
        (
            SimulatedEnergies(joules(1e-6), joules(2e-6)),
            "energy 1 µJ (0.5–2) to 2 µJ (1–4), bounds of its table in brackets",
        ),
        (SimulatedTraffic(2000.0, 1000.0), "memory moves 2.0 kB to 1.0 kB"),
        (RemedyOfRuns(Remark("fuse"), ("cnn", "mlp"), 2), "fuse"),
        (RemedyOfRuns(Remark("fuse"), ("cnn", "mlp"), 3), "fuse (cnn; mlp)"),
        (RemedyOfRuns(Remark("fuse"), ("a", "b", "c", "d"), 5), "fuse (4 of 5 configurations)"),
        (ProductOfParts("equal", 6.0), "as the product of its parts, 6.00x"),
        (ProductOfParts("more", 6.0), "more than the product of its parts, 6.00x"),
        (ProductOfParts("less", 6.0), "less than the product of its parts, 6.00x"),
        (ProductOfParts("unsure", 6.0), "product of its parts 6.00x, the difference not significant"),
        (ProductOfParts("", 6.0), "not significant"),
        (OptionOutcome(FASTER, Value(1.7, "1", "derived", 1.5, 1.9), 1.8), "1.70x faster"),
        (OptionOutcome(SLOWER, Value(0.5, "1", "derived", 0.4, 0.6), None), "2.00x slower"),
        (OptionOutcome(NOTHING, Value(1.0, "1", "derived", 0.99, 1.01), 1.111), "not significant"),
        (
            OptionOutcome(UNKNOWN, Value(1.0, "1", "derived", 0.8, 1.2), 1.111),
            "not significant; 1.12x at the most",
        ),
        (
            OptionOutcome(UNKNOWN, Value(2.0, "1", "derived", reason="one each"), 1.111),
            "one each; 1.12x at the most",
        ),
        (OptionOutcome("", Value(None, "1", "derived", reason="not measured yet"), None), "not measured yet"),
        (PublishedElsewhere("", "cpu", "small", ()), ""),
        (
            PublishedElsewhere("K40", "cpu", "small", (("image", "64x48"), ("epochs", "2"))),
            "published on K40, ours on cpu; ours at scale small: image=64x48, epochs=2",
        ),
    ],
)
def test_each_finding_has_its_words(finding: Finding, words: str) -> None:
    assert describe(finding) == words


def option(name: str, effect: str, value: float | None, parts: Sequence[str] = ()) -> Option:
    together = CombinedOptions(tuple(parts), 1.0, Value(1.0, "1", "derived"), "") if parts else None
    return Option(name, Value(value, "1", "derived"), effect, together=together, applies=value is not None)


def sentence(options: Sequence[Option]) -> str:
    return describe(OptionsBring(tuple(option_effects(options))))


def test_one_sentence_for_the_whole() -> None:
    found = [
        option("prefetch", "faster", 1.2),
        option("mixed precision", "faster", 1.4),
        option("prefetch, mixed precision", "faster", 1.7, ("prefetch", "mixed precision")),
        option("private threads", "nothing", 1.0),
        option("cache", "unknown", 1.1),
        option("float16", "slower", 0.5),
        option("pinned memory", "", None),
    ]
    assert sentence(found) == (
        "Prefetch and mixed precision bring 1.70x together; private threads bring nothing here; float16 makes it 2.00x "
        "slower; what cache brings cannot be told from noise; pinned memory does not apply here."
    )
    assert sentence(found[:1]) == "Prefetch brings 1.20x." and sentence([]) == ""


def place(name: str, *options: Option) -> Options:
    return Options(name, "base", options, OptionsBring(()))


def test_one_sentence_for_all_places_says_what_holds_where() -> None:
    def told(name: str, effect: str, value: float, low: float, high: float) -> Option:
        return Option(name, Value(value, "1", "derived", low, high), effect)

    lacking = option("private threads", "", None)
    cnn = place(
        "cnn", told("compile", "unknown", 0.66, 0.4, 1.3), told("mixed float16", "slower", 0.5, 0.4, 0.625),
        told("cache", "nothing", 1.0, 0.97, 1.03), told("prefetch", "unknown", 1.1, 0.8, 1.5), lacking,
    )  # fmt: skip
    deep = place(
        "resnet50", told("compile", "faster", 2.43, 1.57, 3.77), told("mixed float16", "slower", 0.8, 0.7, 0.9),
        told("cache", "nothing", 1.01, 0.98, 1.04), told("prefetch", "unknown", 1.2, 0.9, 1.6), lacking,
    )  # fmt: skip
    assert describe(brought_everywhere([cnn, deep])) == (
        "Compile brings 2.43x (1.57 to 3.77) with resnet50; cache brings nothing here (0.97 to 1.04); mixed float16 "
        "makes it 1.25x to 2.00x slower (1.11 to 2.50); what prefetch brings cannot be told from noise (0.80 to 1.60); "
        "private threads do not apply here."
    )
    assert describe(brought_everywhere([deep])) == sentence(deep.options)
    assert describe(brought_everywhere([])) == ""


def test_what_noise_hides_is_bounded() -> None:
    """Options of the input can bring no more than waiting for data takes."""
    little = [OptionEffect((name,), "little", 1.0, 1.0, 0.7, 1.4, bound=10 / 9.98) for name in ("prefetch", "cache")]
    unknown = [OptionEffect((name,), "unknown", 1.0, 1.0, 0.7, 1.4, bound=10 / 9) for name in ("prefetch", "cache")]
    assert (
        describe(OptionsBring(tuple(little)))
        == "Input takes too little for prefetch and cache to bring more than 1.01x."
    )
    assert describe(OptionsBring(tuple(unknown))) == (
        "What prefetch and cache bring cannot be told from noise (0.70 to 1.40), but input takes too little for more "
        "than 1.12x."
    )
