"""No sentence about a run is silly: whatever the summary, what it says can be; the headline is the largest thing."""

from __future__ import annotations

import dataclasses
import math
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plain_runs import machine_of, target_of, workload_of
from sonda.analysis import wording
from sonda.analysis.doubts import Drifted
from sonda.analysis.rules.advice import Change, TryChange
from sonda.analysis.rules.judge import verdicts
from sonda.analysis.rules.limit_findings import (
    AboveCeiling,
    ComputeBound,
    LongestPhase,
    MinorSteps,
    NoClearLimit,
    NoSteps,
    NothingToJudge,
    OutsideLayers,
    Pieces,
    TooNoisy,
    UnexplainedWork,
)
from sonda.analysis.rules.work import WORTH
from sonda.analysis.statistics import judge_noise
from sonda.analysis.steps.costs import Scale
from sonda.analysis.steps.operation_counts import Tally
from sonda.analysis.steps.program import STAGES, Program, ProgramStage
from sonda.analysis.summary import PartSummary, Summary, Value
from sonda.record.spans import PARTS
from sonda.report.words import describe, verdict_sentences
from verdicts_cases import CEILINGS, MISSING, bare, cost, layer, phase

PERCENT = re.compile(r"([\d.,]+) %")
PHASES = ("data", "forward", "loss", "backward", "optimizer", "transfer", "other")
CLASSES = ("Conv2d", "Linear", "ReLU", "BatchNorm2d", "Mine", "Yours", "Ours", "Theirs", "Hers", "His", "Its")
BOUNDS = ("", "compute", "memory", "overhead")


def part(phases, layers, noise=0.01, step=100e6, steps=20, low=None, high=None) -> PartSummary:
    value = Value(step, "ns", "measured", low, high)
    return PartSummary(
        "train", value, steps, 0, (step,) * steps, noise, MISSING, MISSING, tuple(phases), tuple(layers), {}
    )  # fmt: skip


def summary(parts, program=None, ceilings=CEILINGS, traced=()) -> Summary:
    return Summary(
        "7f3a", "", "", "complete", tuple(parts), (), (), ceilings, (), program=program,
        workload=workload_of({"name": "mine.py", "command": ["python", "mine.py"], "traced": list(traced)}),
        target=target_of({"spec": "", "threads": 1, "device": "cpu"}), machine=machine_of({"effective_cores": 2}),
    )  # fmt: skip


def program(shares: dict[str, float], whole: float = 90e9, steps: int = 20) -> Program:
    return Program(
        Value(whole, "ns", "measured"),
        tuple(
            ProgramStage(name, Value(share * whole, "ns", "measured"), share, steps if name in PARTS else 0)
            for name in STAGES
            if (share := shares.get(name, 0.0)) > 0
        ),
    )


def parts_of_one(weights: dict) -> dict:
    total = sum(weights.values())
    return {name: weight / total for name, weight in weights.items()} if total else {}


weights = st.one_of(st.just(0.0), st.floats(1e-4, 1.0))


@st.composite
def summaries(draw) -> Summary:
    phases = parts_of_one(draw(st.dictionaries(st.sampled_from(PHASES), weights, min_size=1)))
    counted = draw(st.booleans())
    reach = st.one_of(st.just(0.0), st.floats(0.001, 1.4), st.floats(1.4, 60.0))

    def piece(share: float):
        return cost(100 * share, draw(st.sampled_from(BOUNDS)), draw(reach)) if counted else bare(100 * share)

    rows = [phase(name, piece(share)) for name, share in phases.items()]
    if draw(st.booleans()):
        rows.append(phase("communicate", dataclasses.replace(bare(0), share=math.nan)))
    layered = phases.get("forward", 0.0) + phases.get("backward", 0.0)
    inside = parts_of_one(draw(st.dictionaries(st.sampled_from(CLASSES), weights)))
    covered = draw(st.sampled_from([0.02, 0.5, 1.0, 1.2])) * layered
    layers = [layer(name, name, piece(share * covered)) for name, share in inside.items()]
    noise = draw(st.sampled_from([0.01, 0.6, 3.4, math.nan]))
    steps = draw(st.sampled_from([1, 2, 20, 10**6]))
    found = [part(rows, layers, noise, low=draw(st.sampled_from([None, 1e6])), high=5e8)] if draw(st.booleans()) else []
    if found and steps == 1:
        found = [dataclasses.replace(found[0], steps=1, durations=(100e6,))]
    stages = parts_of_one(draw(st.dictionaries(st.sampled_from(STAGES), weights)))
    whole = program(stages, steps=steps) if stages and draw(st.booleans()) else None
    return summary(found, whole, CEILINGS if counted else {"reason": "none were measured"})


def is_sensible(sentence: str) -> bool:
    shown = [float(number.replace(",", "")) for number in PERCENT.findall(sentence)]
    words = ("nan", "None", "inf", "0.0 %", "-0", " ,", "  ", "..", "{", "}")
    return all(value <= 100 for value in shown) and not any(word in sentence for word in words)


@settings(max_examples=400, deadline=None)
@given(summaries())
def test_no_sentence_is_silly_and_the_headline_is_the_largest_thing(found: Summary) -> None:
    said, failures = verdicts(found)
    assert said and not failures
    sentences = verdict_sentences(dataclasses.replace(found, verdicts=said))
    for verdict, sentence in zip(said, sentences, strict=True):
        assert is_sensible(sentence), sentence
        assert all(is_sensible(describe(remedy.advice)) for remedy in verdict.remedies)
        for name in ("share", "of_peak", "of_bandwidth", "of_time", "unexplained"):
            value = verdict.evidence[name].value if name in verdict.evidence else None
            assert value is None or 0 <= value <= 1, (name, value)
    first = said[0]
    if first.kind in STAGES and found.program is not None:
        others = [stage.share for stage in found.program.stages if stage.name not in (*PARTS, "observing")]
        assert first.evidence["of_program"].value >= max(others, default=0.0)
        return
    if isinstance(first.finding, NothingToJudge | NoSteps | TooNoisy) or not found.parts:
        return
    shares = [row.cost.share for row in found.parts[0].phases if row.cost.share == row.cost.share]
    named = max((float(number) / 100 for number in PERCENT.findall(sentences[0])), default=1.0)
    assert named >= min(WORTH, max(shares, default=0.0)) - 0.006, sentences[0]  # half a percent is what rounding takes


def test_a_forward_of_91_percent_is_what_the_headline_names() -> None:
    """Its layers cover little of it: functions that no module holds."""
    rows = [phase("forward", cost(91, "", 0.1)), phase("loss", bare(7)), phase("other", bare(2))]
    first = verdicts(summary([part(rows, [layer("a", "Linear", cost(0.6, "", 0.2))])]))[0][0]
    assert isinstance(first.finding, NoClearLimit) and isinstance(first.finding.largest, OutsideLayers)
    assert first.finding.largest.phases == ("forward",)
    assert first.finding.largest.share.value == pytest.approx(0.91 - 0.006)


def test_a_larger_limit_that_is_known_comes_before_a_smaller_piece_that_is_not() -> None:
    rows = [phase("forward", cost(90)), phase("other", bare(10))]
    layers = [layer("a", "Conv2d", cost(45, "compute", 0.8)), layer("b", "Linear", cost(25, "", 0.2)),
              layer("c", "ReLU", cost(20, "", 0.1))]  # fmt: skip
    first, second = (verdict.finding for verdict in verdicts(summary([part(rows, layers)]))[0])
    assert isinstance(first, ComputeBound) and first.share.value == pytest.approx(0.45)
    assert isinstance(second, NoClearLimit) and isinstance(second.largest, UnexplainedWork)
    assert second.largest.pieces == Pieces(("Linear",)) and second.largest.share.value == pytest.approx(0.25)


def test_many_small_kinds_are_one_number_that_is_worth_a_sentence() -> None:
    layers = [layer(str(at), f"Kind{at}", cost(4, "compute", 0.8)) for at in range(20)]
    first = verdicts(summary([part([phase("forward", cost(80))], layers)]))[0][0]
    assert isinstance(first.finding, ComputeBound) and len(first.finding.pieces) == 20
    assert first.finding.share.value == pytest.approx(0.8)


def test_pieces_that_are_not_worth_a_sentence_give_way_to_their_phase() -> None:
    layers = [layer(str(at), f"Kind{at}", cost(5, "", 0.1)) for at in range(12)]
    rows = [phase("forward", cost(60)), phase("loss", cost(8)), phase("optimizer", cost(25, "memory", 0.9)),
            phase("other", bare(7))]  # fmt: skip
    first = verdicts(summary([part(rows, layers)]))[0][0]
    assert first.finding == NoClearLimit(LongestPhase(Value(0.6, "1", "derived"), "forward"))


def test_more_than_a_ceiling_says_why_instead_of_a_percentage() -> None:
    layers = [layer("a", "Conv2d", cost(80, "compute", 1.3))]
    first = verdicts(summary([part([phase("forward", cost(80))], layers)]))[0][0]
    assert first.kind == "above_ceiling"
    assert isinstance(first.finding, AboveCeiling) and first.finding.ceiling == "compute"
    assert first.finding.share.value == pytest.approx(0.8)
    assert first.remedies[0].advice == TryChange(Change.MEASURE_CEILINGS)


@pytest.mark.parametrize(
    ("share", "said"),
    [(0.0, "0 %"), (0.0004, "less than 0.1 %"), (0.0006, "0.1 %"), (0.0994, "9.9 %"), (1.0, "100 %"),
     (math.nan, "an unknown share")],
)  # fmt: skip
def test_what_is_there_is_never_nothing(share: float, said: str) -> None:
    assert wording.percent(share) == said


def test_a_step_that_is_hardly_known_is_told_by_its_ends() -> None:
    noisy = part([phase("forward", cost(100))], [], 3.44, low=1.2e6, high=8e6)
    assert verdicts(summary([noisy]))[0][0].finding == TooNoisy(Value(3.44, "1", "derived"), noisy.step)


@pytest.mark.parametrize("times", [3.5, 40.0])
def test_steps_that_grow_several_times_longer_are_told_by_the_factor(times: float) -> None:
    (doubt,) = judge_noise([1e6] * 20 + [times * 1e6] * 20)
    assert isinstance(doubt, Drifted) and doubt.change.value == pytest.approx(times - 1)
    assert f"took {times:.1f} times as long as the first" in describe(doubt)


# ---- the whole program ------------------------------------------------------------------------------------------


def test_steps_that_are_a_minor_part_of_the_program_are_said_to_be() -> None:
    whole = program({"imports": 0.62, "preparation": 0.374, "train": 0.006})
    said, _ = verdicts(summary([part([phase("forward", cost(100, "compute", 0.9))], [])], whole))
    first, second = (verdict.finding for verdict in said)
    assert isinstance(first, ComputeBound), "a start takes as long however many steps follow"
    assert isinstance(second, MinorSteps) and (second.steps, second.share.value) == (20, pytest.approx(0.006))
    assert (second.largest.stage, second.largest.share.value) == ("imports", pytest.approx(0.62))


def test_that_comes_first_also_where_the_step_is_too_noisy() -> None:
    whole = program({"checkpoints": 0.7, "train": 0.3})
    noisy = part([phase("forward", cost(100))], [], 0.6)
    first, second = (verdict.finding for verdict in verdicts(summary([noisy], whole))[0])
    assert isinstance(first, MinorSteps) and first.largest.stage == "checkpoints"
    assert isinstance(second, TooNoisy)


def test_steps_that_are_most_of_the_program_are_judged_alone() -> None:
    found = summary([part([phase("forward", cost(100, "compute", 0.9))], [])], program({"imports": 0.4, "train": 0.6}))
    assert verdicts(found)[0][0].kind == "compute"


def test_a_validation_that_takes_more_than_the_training_is_named() -> None:
    whole = program({"train": 0.05, "validate": 0.8, "imports": 0.15})
    first = verdicts(summary([part([phase("forward", cost(100, "compute", 0.9))], [])], whole))[0][0]
    assert isinstance(first.finding, MinorSteps) and first.finding.part == "train"
    assert (first.finding.share.value, first.finding.largest.stage) == (pytest.approx(0.05), "validate")
    assert [remedy.advice for remedy in first.remedies] == [TryChange(Change.VALIDATE_LESS)]


def test_a_program_without_steps_is_told_by_its_largest_stage() -> None:
    (only,) = verdicts(summary([], program({"imports": 0.3, "running": 0.7})))[0]
    assert isinstance(only.finding, NoSteps) and only.finding.largest.stage == "running"
    assert only.finding.whole.value == 90e9 and only.finding.largest.time.value == pytest.approx(63e9)
    assert only.remedies == () and only.kind == "nothing"


# ---- zeros ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "tally",
    [
        Tally(operations=3, unknown=3),
        Tally(operations=3, unknown=2, bytes=4096),  # the third is a view, or an activation that is made of comparisons
    ],
)
def test_flops_that_nobody_knows_are_missing_and_never_0(tally: Tally) -> None:
    scale = Scale(Value(1e6, "ns", "measured"), None, "none were measured", "", 1_000.0)
    found = scale.cost(Value(5e5, "ns", "measured"), tally)
    for value in (found.flops, found.achieved, found.roof):
        assert value.value is None and "no formula" in value.reason
    assert found.bound == "" and found.share == 0.5 and found.operations.value == 3


def test_flops_of_comparisons_are_known_to_be_0() -> None:
    scale = Scale(Value(1e6, "ns", "measured"), None, "none were measured", "", 1_000.0)
    assert scale.cost(Value(5e5, "ns", "measured"), Tally(operations=2, bytes=4096)).flops.value == 0
