"""Every kind of doubt and note in words; the order of verdicts; findings in documents."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace

import pytest

import report_examples as examples
from sonda.analysis import doubts
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
from sonda.analysis.findings import Finding, Remark
from sonda.analysis.rules import advice
from sonda.analysis.rules import limit_findings as limits
from sonda.analysis.rules.limit_findings import MinorSteps, StageShare
from sonda.analysis.summary import Value, Verdict
from sonda.record.target import NO_STEP_OF_BLOCK, ImportedTarget
from sonda.report.words import describe, in_words, verdict_sentences, word_findings

CLOSE = "close other programs and measure again"


def part(value: float) -> Value:
    return Value(value, "1", "derived")


WORDS: list[tuple[Finding, str]] = [
    (
        RunFailed(None),
        "the run failed: only what was seen until then is shown; mend the cause and run it again",
    ),
    (
        EndedEarly(1),
        "the program ended early with exit code 1: only what was seen until then is shown; run it again for the whole",
    ),
    (NoStepSeen(of_block=True), NO_STEP_OF_BLOCK),
    (
        NoStepSeen(of_block=False),
        "no step was seen: nothing that was observed called a module or stepped an optimizer; check that the part that "
        "trains or infers was reached, in a process that was not killed",
    ),
    (
        OnlyWarmup("train"),
        "train: only warm-up steps were seen, and their times are shown; let it run longer",
    ),
    (OnlyCounted("test"), "test: only counted steps were seen, so there are no times; let it run longer"),
    (
        FewSteps("train", 2, 20, by_option=True),
        "train: only 2 steps after warm-up: too few for a 95 % interval; measure more with --steps 20",
    ),
    (
        FewSteps("", 1, 20, by_option=False),
        "only 1 step after warm-up: too few for a 95 % interval; let the program run about 20 steps",
    ),
    (Drifted("train", part(0.3)), f"train: the second half of the steps was 30 % slower than the first: {CLOSE}"),
    (Drifted("", part(-0.2)), f"the second half of the steps was 20 % faster than the first: {CLOSE}"),
    (Drifted("", part(2.5)), f"the second half of the steps took 3.5 times as long as the first: {CLOSE}"),
    (
        NoisySteps("train", part(0.2), 160, by_option=True),
        "train: the step is known only to ±20 %: close other programs, or measure more with --steps 160",
    ),
    (
        NoisySteps("", part(0.2), 160, by_option=False),
        "the step is known only to ±20 %: close other programs, or let the program run about 160 steps",
    ),
    (NoisySteps("", part(0.9), 0, by_option=True), f"the step is known only to ±90 %: {CLOSE}"),
    (NoisySteps("", part(1.2), 0, by_option=True), f"steps differ by more than their median: {CLOSE}"),
    (
        AboveRoof("train", ("forward", "backward")),
        "train: forward and backward ran above the roof: measure the machine's ceilings again while nothing else runs: "
        "sonda doctor --measure; then run again",
    ),
    (NoTopDown("a formula ends too early", "run again"), "Top-Down is missing: a formula ends too early; run again"),
    (WrongVerdict("wordy", "mine:wordy", "str"), "the rule wordy of mine:wordy gives a str, not a Verdict"),
    (ProbeSilent("energy", "no RAPL here", ""), "energy: no RAPL here"),
    (ProbeSilent("pmu", "not allowed", "run as root"), "pmu: not allowed; run as root"),
    (
        UnevenPhases("train", part(0.8)),
        "train: the phases' medians add up to 80 % of the median step: they were slow in different steps",
    ),
    (
        UnevenPhases("train", part(1.3)),
        "train: the phases' medians add up to 1.3 times the median step: they were slow in different steps",
    ),
    (NoRoof("nothing was measured"), "percent of roof is missing: nothing was measured"),
    (ThreadsAssumed(4), "the run does not say its threads: it is held against the ceilings of 4"),
    (HeldAgainstTf32(True, False, assumed=False), "float32 products are held against the peak of TF32"),
    (
        HeldAgainstTf32(True, True, assumed=True),
        "float32 products and convolutions are held against the peak of TF32 (PyTorch's default; the program does not "
        "say)",
    ),
    (
        PaddingSkipped("train", part(0.28)),
        "train: 28 % of the FLOPs multiply the zeros of padding, which libraries skip; % of roof is of the others",
    ),
    (
        ObservingCost(part(0.004)),
        "observing took at least 0.4 % of the step (derived: layers and phases x their least cost)",
    ),
    (
        ObservingCost(part(0.0003)),
        "observing took next to nothing of the step (derived: layers and phases x their least cost)",
    ),
    (
        ObservingCostUnknown(),
        "what observing took of the step is not known: when its cost was measured, at the end, recording was slower "
        "than it can have been in the steps",
    ),
    (StolenTime(part(0.05)), "the hypervisor gave 5.0 % of the processors' time to others meanwhile"),
    (
        LayersApart("train", 3, 2.0),
        "train: layers are told apart in 3 steps of their own, which took 2.0 times as long; their times are their "
        "shares of the timed phases",
    ),
    (
        InsideFused("train", (("forward", 0.4), ("backward", 0.5)), 0.1),
        "train: inside the fused function, forward 40 %, backward 50 % and 10 % in none of these",
    ),
    (
        InsideFused("train", (("forward", 0.4), ("backward", 0.6)), 0.0),
        "train: inside the fused function, forward 40 % and backward 60 %",
    ),
    (
        OtherLayers("train", part(0.25)),
        "train: 25 % of the steps called other layers than the counted one, whose FLOPs are shown",
    ),
    (
        OneShapeCounted("train", Covered(5, 8)),
        "train: the steps have several input shapes; FLOPs, rates and roofs are those of the most frequent one that "
        "was counted (5 of 8 steps, 62 %)",
    ),
    (
        ShapesNotForetold("train", 7, Covered(3, 30)),
        "train: the steps have 7 input shapes that were not counted, and nothing foretells them; FLOPs are means over "
        "the counted steps alone (3 of 30 steps, 10 %)",
    ),
    (
        ShapesAveraged("train", 2, 2, foretold=False, covered=Covered(8, 8)),
        "train: the steps have 2 input shapes, of which 2 were counted; FLOPs are means over 8 of 8 steps, 100 %",
    ),
    (
        ShapesAveraged("train", 55, 5, foretold=True, covered=Covered(0, 0)),
        "train: the steps have 55 input shapes, of which 5 were counted and the others follow from their sizes; FLOPs "
        "are means over 0 of 0 steps",
    ),
    (
        SeveralProcesses(3, Value(200e6, "ns", "measured", 100e6, 300e6, few=3)),
        "3 processes: median step 200 ms, least to most of 3 100 to 300 ms; the one in the middle is shown",
    ),
    (
        SeveralProcesses(2, Value(200e6, "ns", "measured")),
        "2 processes: median step 200 ms; the one in the middle is shown",
    ),
]


@pytest.mark.parametrize(("finding", "words"), WORDS, ids=lambda case: getattr(case, "kind", ""))
def test_a_doubt_is_said_with_its_numbers_and_its_remedy(finding: Finding, words: str) -> None:
    assert describe(finding) == words


@pytest.mark.parametrize("module", [doubts, advice, limits])
def test_every_kind_has_words_and_a_name_of_its_own(module: object) -> None:
    kinds = [kind for _, kind in inspect.getmembers(module, inspect.isclass) if issubclass(kind, Finding) and kind.kind]
    assert len({kind.kind for kind in kinds}) == len(kinds) > 10
    assert all(describe.has_words(kind) for kind in kinds) and not describe.has_words(Finding)


def test_a_finding_without_words_is_refused() -> None:
    @dataclass(frozen=True)
    class Unworded(Finding):
        pass

    with pytest.raises(TypeError, match="no words for findings of the kind Unworded"):
        describe(Unworded())


# ---- verdicts in their order --------------------------------------------------------------------------------------

WHOLE = MinorSteps(Value(90e9, "ns", "measured"), StageShare("imports", part(0.62), part(1)), 20, part(0.1))


def test_verdicts_after_the_first_begin_with_then() -> None:
    said = tuple(Verdict("none", Remark(text), {}) for text in ("First.", "Second.", "Third."))
    summary = replace(examples.training(), verdicts=said)
    assert verdict_sentences(summary) == ["First.", "Then second.", "Then third."]
    of_program = replace(summary, verdicts=(Verdict("imports", WHOLE, {}), *said))
    assert verdict_sentences(of_program)[1:] == ["In a step: first.", "Then second.", "Then third."]


def test_verdicts_of_a_trace_speak_each_of_something_else() -> None:
    said = tuple(Verdict("none", Remark(text), {}) for text in ("First.", "Second."))
    summary = replace(examples.training(), verdicts=said, target=ImportedTarget(spec="", device=""))
    assert verdict_sentences(summary) == ["First.", "Second."]


def test_findings_are_said_once_and_worded_wherever_they_stand_in_a_document() -> None:
    assert in_words([NoRoof("a"), Remark("b"), Remark("percent of roof is missing: a")]) == [
        "percent of roof is missing: a",
        "b",
    ]
    document = {"limits": [{"sentence": Remark("x"), "share": 0.5}], "remedies": ["y", Remark("z")], "none": None}
    assert word_findings(document) == {
        "limits": [{"sentence": "x", "share": 0.5}],
        "remedies": ["y", "z"],
        "none": None,
    }
