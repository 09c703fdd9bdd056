"""Each rule firing and not firing, on constructed summaries."""

from __future__ import annotations

import dataclasses
from importlib.metadata import EntryPoint

import pytest

from builders import trained
from sonda.analysis.doubts import EndedEarly, WrongVerdict
from sonda.analysis.findings import Finding, Remark
from sonda.analysis.rules.advice import (
    Change,
    CompileLess,
    FuseOperations,
    LoadAhead,
    LoadInParallel,
    SpeedUpStage,
    TryChange,
    UseFloat32,
)
from sonda.analysis.rules.code import input
from sonda.analysis.rules.judge import verdicts
from sonda.analysis.rules.limit_findings import (
    UNNAMED,
    BetweenPhases,
    ComputeBound,
    InputBound,
    LongestPhase,
    MemoryBound,
    NoLimitNamed,
    OverheadBound,
    Pieces,
    TooNoisy,
    UnexplainedWork,
)
from sonda.analysis.rules.limits import compute, memory, none, overhead
from sonda.analysis.rules.program import whole_program
from sonda.analysis.rules.work import works
from sonda.analysis.run_summary import summarise
from sonda.analysis.steps.pipeline import summarise_pipelines
from sonda.analysis.steps.program import Program, ProgramStage
from sonda.analysis.summary import Summary, Value, Verdict
from sonda.report.views.steps.pipeline import slowest_words
from verdicts_cases import CEILINGS, PEAKS, bare, cost, layer, phase, summary


def program(*rows, **more) -> Summary:
    """A program that Sonda did not start, with data of its own."""
    return summary(*rows, target={"spec": "", "threads": 1}, **more)


def test_data_that_sonda_makes_up_is_nobodys_input():
    assert input.rule(summary([phase("data", bare(40))])) is None


def test_why_no_limit_is_named_is_told_by_the_kind():
    """A reader of a document tells what was too noisy from what was not counted, and from what was not seen."""
    unclear = summary(layers=[layer("a", "Conv2d", cost(90, "", 0.2))])
    noisy = dataclasses.replace(unclear, parts=(dataclasses.replace(unclear.parts[0], noise=0.6),))
    uncounted = summary([phase("forward", bare(60))])
    unseen = dataclasses.replace(unclear, parts=())
    kinds = [verdicts(found)[0][0].kind for found in (unclear, noisy, uncounted, unseen)]
    assert kinds == ["none", "noisy", "unknown", "nothing"]
    assert set(kinds) < UNNAMED


def test_a_step_that_is_hardly_known_is_not_judged():
    found = summary(layers=[layer("a", "Conv2d", cost(90, "compute", 0.8))])
    noisy = dataclasses.replace(found, parts=(dataclasses.replace(found.parts[0], noise=0.6),))
    (verdict,), _ = verdicts(noisy)
    assert isinstance(verdict.finding, TooNoisy) and verdict.finding.noise.value == 0.6
    assert verdicts(found)[0][0].kind == "compute"


@pytest.mark.parametrize(("count", "again", "advised"), [(12, 10, True), (12, 2, False), (0, 0, False)])
def test_code_that_is_compiled_again_and_again_should_be_compiled_once(count: int, again: int, advised: bool) -> None:
    """Compiling takes 80 of 100 s. Where most of it is of code that was compiled before, it is not paid once."""
    compiling = ProgramStage("compile", Value(80e9, "ns", "measured"), 0.8, count, again=again)
    steps = ProgramStage("train", Value(20e9, "ns", "measured"), 0.2, 40)
    whole = Program(Value(100e9, "ns", "measured"), (compiling, steps))
    verdict = whole_program.rule(dataclasses.replace(summary(), program=whole))
    assert verdict is not None and verdict.kind == "compile"
    once, later = TryChange(Change.COMPILE_ONCE), TryChange(Change.RUN_LONGER)
    less = CompileLess("torch")
    assert [remedy.advice for remedy in verdict.remedies] == ([once, less] if advised else [less, later])


@pytest.mark.parametrize(("code", "steps", "advised"), [(1, 0, False), (0, 0, True), (1, 3, True)])
def test_a_program_that_fails_before_its_first_timed_step_needs_no_faster_start(
    code: int, steps: int, advised: bool
) -> None:
    stages = (
        ProgramStage("imports", Value(9e9, "ns", "measured"), 0.9),
        ProgramStage("train", Value(1e9, "ns", "measured"), 0.1, steps + 1),
    )
    part = dataclasses.replace(summary().parts[0], steps=steps)
    found = dataclasses.replace(
        summary(), parts=(part,), program=Program(Value(10e9, "ns", "measured"), stages), warnings=(EndedEarly(code),)
    )
    verdict = whole_program.rule(found)
    assert verdict is not None and bool(verdict.remedies) == advised


def options(verdict: Verdict) -> list[tuple[str, ...]]:
    return [remedy.options for remedy in verdict.remedies]


CONVOLUTIONS = [layer("a", "Conv2d", cost(40, "compute", 0.8)), layer("b", "Conv2d", cost(31, "compute", 0.78))]


def test_compute_bound_names_the_layers_their_share_and_the_peak():
    verdict = compute.rule(summary(layers=CONVOLUTIONS))
    found = verdict.finding
    assert isinstance(found, ComputeBound) and found.pieces == Pieces(("Conv2d", "Conv2d")) and not found.on_gpu
    assert found.share.value == pytest.approx(0.71)
    assert found.of_peak.ratio.value == pytest.approx((40 * 0.8 + 31 * 0.78) / 71)
    assert verdict.kind == "compute"
    assert verdict.share == pytest.approx(0.71)
    assert verdict.evidence["of_peak"].value == pytest.approx((40 * 0.8 + 31 * 0.78) / 71)
    assert options(verdict) == [("--threads", "2"), ("--channels-last",), ("--precision", "mixed_bfloat16")]


def test_compute_bound_speaks_of_the_leading_families_only():
    layers = [*CONVOLUTIONS, layer("c", "Linear", cost(5, "compute", 0.6))]
    # Convolutions are 71 of 76: more than 80 %, so they alone are named; the share of the verdict is all of it.
    verdict = compute.rule(summary(layers=layers))
    assert verdict.finding.pieces == Pieces(("Conv2d", "Conv2d"))
    assert verdict.finding.share.value == pytest.approx(0.71)
    assert verdict.share == pytest.approx(0.76)


def test_an_interval_of_few_values_is_not_called_one_of_95_percent():
    """Of two layers one was seen in three steps: the ends of their sum are least to most of three."""
    ends = [Value(40e6, "ns", "measured", 38e6, 43e6, few=few) for few in (0, 3)]
    layers = [layer(str(i), "Conv2d", dataclasses.replace(cost(40, "compute", 0.8), time=time))
              for i, time in enumerate(ends)]  # fmt: skip
    of_peak = compute.rule(summary(layers=layers)).evidence["of_peak"]
    assert of_peak.few == 3 and of_peak.low == pytest.approx(64 / 86) and of_peak.high == pytest.approx(64 / 76)


def test_compute_does_not_fire_below_a_tenth_of_the_step():
    assert compute.rule(summary(layers=[layer("a", "Conv2d", cost(9, "compute", 0.8))])) is None


def test_compute_does_not_fire_without_that_bound():
    assert compute.rule(summary(layers=[layer("a", "Conv2d", cost(90))])) is None


def test_memory_bound_counts_layers_bytes_and_bandwidth():
    layers = [layer(f"n{i}", "BatchNorm2d", cost(0.5, "memory", 0.91, moved=2e9 / 20)) for i in range(20)]
    layers += [layer(f"r{i}", "ReLU", cost(0.5, "memory", 0.91, moved=1.1e9 / 16)) for i in range(16)]
    verdict = memory.rule(summary(layers=layers))
    found = verdict.finding
    assert isinstance(found, MemoryBound) and not found.cached
    assert found.pieces == Pieces(("BatchNorm2d",) * 20 + ("ReLU",) * 16)
    assert (found.moved.value, found.share.value) == (pytest.approx(3.1e9), pytest.approx(0.18))
    assert found.of_bandwidth.ratio.value == pytest.approx(0.91)
    assert options(verdict) == [("--compile",), ("--threads", "2"), ("--precision", "mixed_bfloat16")]


def test_memory_bound_names_the_cache_where_the_bytes_fit_in_it():
    verdict = memory.rule(summary(phases=[phase("optimizer", cost(30, "memory", 0.7, moved=8e6, cached=1.0))]))
    assert verdict.finding.cached and verdict.finding.pieces == Pieces(phases=("optimizer",))
    assert verdict.evidence["bandwidth"].value == 40e9


def test_memory_does_not_fire_below_a_tenth_of_the_step():
    assert memory.rule(summary(layers=[layer("n", "BatchNorm2d", cost(9, "memory", 0.9, moved=1e9))])) is None


def test_overhead_bound_counts_operations_and_their_cost():
    # 412 operations, 0.8 of 61 ms: 118 µs each.
    verdict = overhead.rule(summary(layers=[layer("a", "Linear", cost(61, "overhead", 0.8, ops=412))]))
    found = verdict.finding
    assert isinstance(found, OverheadBound) and found.pieces == Pieces(("Linear",))
    assert (found.share.value, found.operations.value) == (pytest.approx(0.61), 412)
    assert found.operation_cost.value == pytest.approx(0.8 * 61e6 / 412)
    assert options(verdict) == [("--batch", "64"), ("--compile",)]


def test_overhead_does_not_fire_without_that_bound():
    assert overhead.rule(summary(layers=CONVOLUTIONS)) is None


def test_input_bound_above_a_fifth_of_the_step():
    verdict = input.rule(program([phase("data", bare(21))], CONVOLUTIONS, workload={"workers": 0}))
    assert verdict.finding == InputBound(Value(0.21, "1", "derived"), Value(21e6, "ns", "measured"), workers=0)
    assert [remedy.advice for remedy in verdict.remedies] == [LoadInParallel("torch", 2, 0)]


def of_tf_data(*stages: dict, **more) -> dict:
    """The workload of a program in TensorFlow whose training is fed by these stages, the last one first."""
    root = {"name": "Root", "elements": 40, "ns": 0}
    fed = {"part": "train", "stages": [root, *({"elements": 40, **stage} for stage in stages)]}
    return {"framework": "tensorflow", "loader": "tf.data", "prefetch": 2, "pipelines": [fed], **more}


def advice(workload: dict) -> list[Finding]:
    """For a training that waits 30 of 100 ms for its input."""
    found = program([phase("data", bare(30)), phase("fused", cost(70))], workload=workload)
    found = dataclasses.replace(found, pipelines=summarise_pipelines(found.workload))
    return [remedy.advice for remedy in input.rule(found).remedies]


@pytest.mark.parametrize(
    ("workload", "advised"),
    [
        ({"framework": "tensorflow", "loader": "PyDataset", "workers": 0, "prefetch": -1},
         [LoadInParallel("PyDataset", 2, 0)]),
        ({"framework": "jax", "loader": "PyDataset", "workers": 0, "prefetch": 0},
         [LoadInParallel("PyDataset", 2, 0)]),
        ({"framework": "jax", "loader": "PyDataset", "workers": 1, "prefetch": 10},
         [LoadInParallel("PyDataset", 2, 1)]),
        ({"framework": "jax", "loader": "PyDataset", "workers": 2, "prefetch": 10}, []),
        ({"framework": "tensorflow", "loader": "generator", "workers": 0, "prefetch": -1},
         [LoadInParallel("generator", 2, 0)]),
        ({"framework": "jax", "loader": "arrays", "workers": 0, "prefetch": 0}, [LoadAhead("jax")]),
        ({"framework": "tensorflow", "loader": "tf.data", "prefetch": 0},
         [LoadAhead("tensorflow"), LoadInParallel("tensorflow", 2, 0)]),
    ],
)  # fmt: skip
def test_what_is_advised_fits_what_loads(workload: dict, advised: list[Finding]) -> None:
    assert advice(workload) == advised


@pytest.mark.parametrize(
    ("name", "words", "does"),
    [
        ("MapAndBatch", "map and batch", "map"),
        ("InterleaveV2", "interleave", "interleave"),
        ("Generator", "generator", "generator"),
        ("TFRecord", "tfrecord", "record"),
    ],
)
def test_the_slowest_stage_of_tf_data_is_the_one_to_mend(name: str, words: str, does: str) -> None:
    """40 batches in 1.2 s are 30 ms each, which is what is waited for."""
    assert advice(of_tf_data({"name": "Prefetch", "ns": 1e6}, {"name": name, "ns": 1.2e9})) == [
        SpeedUpStage(words, does, 1)
    ]


def test_a_stage_that_takes_less_than_half_of_the_wait_does_not_explain_it() -> None:
    advised = advice(of_tf_data({"name": "Prefetch", "ns": 1e6}, {"name": "Map", "ns": 0.5e9}))
    assert advised == [LoadInParallel("tensorflow", 2, 0)]


@pytest.mark.parametrize(
    ("ns", "words"),
    [
        (1.2e9, "The slowest stage is map: a batch every 30.0 ms, 1 call at a time."),
        (0.5e9, "No stage that tf.data measured explains the wait of 30.0 ms a step; the slowest of them is map: a "
                "batch every 12.5 ms, 1 call at a time."),
    ],
)  # fmt: skip
def test_what_is_said_of_the_slowest_stage_fits_the_wait(ns: float, words: str) -> None:
    """40 batches in 1.2 s are 30 ms each, which is what is waited for; in 0.5 s they are less than half of it."""
    workload = of_tf_data({"name": "Prefetch", "ns": 1e6}, {"name": "Map", "ns": ns})
    found = program([phase("data", bare(30)), phase("fused", cost(70))], workload=workload)
    (pipeline,) = summarise_pipelines(found.workload)
    assert slowest_words(pipeline, found) == words


@pytest.mark.parametrize(("name", "words"), [("ParallelMapV2", "parallel map"), ("TFRecord", "tfrecord")])
def test_a_stage_that_makes_several_calls_at_once_is_not_told_to(name: str, words: str) -> None:
    (advised,) = advice(of_tf_data({"name": "Prefetch", "ns": 1e6}, {"name": name, "ns": 2.4e9, "parallel": 2}))
    assert isinstance(advised, SpeedUpStage) and (advised.stage, advised.parallel) == (words, 2)


def test_input_bound_as_the_largest_explained_share():
    assert input.rule(program([phase("data", bare(15))], [layer("a", "Linear", cost(85))])) is not None


def test_input_does_not_fire_when_something_else_explains_more():
    assert input.rule(program([phase("data", bare(15))], CONVOLUTIONS)) is None


def test_input_does_not_fire_for_a_tiny_share_though_nothing_else_is_explained():
    assert input.rule(program([phase("data", bare(5))], [layer("a", "Linear", cost(95))])) is None


def test_no_clear_limit_names_what_takes_most():
    verdict = none.rule(summary([phase("other", bare(10))], [layer("a", "Conv2d", cost(90, "", 0.4))]))
    largest = verdict.finding.largest
    assert isinstance(largest, UnexplainedWork) and largest.pieces == Pieces(("Conv2d",)) and not largest.at_least
    assert (largest.share.value, largest.of_roof.ratio.value) == (pytest.approx(0.9), pytest.approx(0.4))
    assert ("--channels-last",) in options(verdict)


def test_no_clear_limit_names_time_outside_every_phase():
    verdict = none.rule(summary([phase("other", bare(70))], [layer("a", "Conv2d", cost(30, "compute", 0.8))]))
    largest = verdict.finding.largest
    assert isinstance(largest, BetweenPhases) and not largest.saves_files
    assert largest.share.value == pytest.approx(0.7)


def test_no_limit_can_be_named_without_ceilings():
    reason = "the machine's ceilings were not measured"
    found = summary([phase("forward", bare(60)), phase("backward", bare(40))], ceilings={"reason": reason})
    assert none.rule(found).finding == NoLimitNamed(reason, LongestPhase(Value(0.6, "1", "derived"), "forward"))


def test_none_does_not_fire_when_half_of_the_step_is_explained():
    assert none.rule(summary(layers=[layer("a", "Conv2d", cost(50, "compute", 0.8))])) is None


def test_verdicts_come_by_share():
    layers = [*CONVOLUTIONS, layer("n", "BatchNorm2d", cost(20, "memory", 0.9, moved=1e9))]
    said, failures = verdicts(summary(layers=layers))
    assert [verdict.kind for verdict in said] == ["compute", "memory"]
    assert failures == ()


def test_a_remedy_is_offered_once():
    layers = [*CONVOLUTIONS, layer("n", "BatchNorm2d", cost(20, "memory", 0.9, moved=1e9))]
    said, _ = verdicts(summary(layers=layers))
    assert options(said[0]) == [("--threads", "2"), ("--channels-last",), ("--precision", "mixed_bfloat16")]
    assert options(said[1]) == [("--compile",)]


@pytest.mark.parametrize(
    ("change", "gone"),
    [
        ({"target": {"threads": 2}}, ("--threads", "2")),
        ({"workload": {"name": "cnn", "channels_last": True}}, ("--channels-last",)),
        ({"workload": {"name": "cnn", "precision": "bf16"}}, ("--precision", "mixed_bfloat16")),
        ({"ceilings": {**CEILINGS, "peaks": {"float32": PEAKS["float32"]}}}, ("--precision", "mixed_bfloat16")),
        (
            {"ceilings": {**CEILINGS, "peaks": {**PEAKS, "bfloat16": Value(90e9, "FLOP/s", "measured")}}},
            ("--precision", "mixed_bfloat16"),
        ),
    ],
)
def test_remedies_that_make_no_sense_are_not_offered(change, gone):
    assert gone in options(compute.rule(summary(layers=CONVOLUTIONS)))
    assert gone not in options(compute.rule(summary(layers=CONVOLUTIONS, **change)))


def test_channels_last_is_not_offered_without_convolutions():
    assert options(compute.rule(summary(layers=[layer("a", "Linear", cost(90, "compute", 0.8))]))) == [
        ("--threads", "2"),
        ("--precision", "mixed_bfloat16"),
    ]


def test_compile_and_workers_are_not_offered_when_in_use():
    layers = [layer("n", "BatchNorm2d", cost(60, "memory", 0.9, moved=1e9))]
    workload = {"compile": True, "workers": 2}
    assert ("--compile",) not in options(memory.rule(summary(layers=layers, workload=workload)))
    verdict = input.rule(program([phase("data", bare(30))], workload=workload))
    assert verdict.finding.workers == 2 and verdict.finding.share.value == pytest.approx(0.3)
    assert verdict.remedies == ()


def test_batch_is_not_offered_where_there_is_none():
    layers = [layer("a", "Linear", cost(61, "overhead", 0.8))]
    assert options(overhead.rule(summary(layers=layers, workload={"name": "net.py:build"}))) == [("--compile",)]


def test_programs_get_advice_in_words():
    layers = [layer("a", "Linear", cost(61, "overhead", 0.8))]
    verdict = overhead.rule(summary(layers=layers, target={"spec": "", "threads": 2}))
    assert options(verdict) == [(), ()]
    assert [remedy.advice for remedy in verdict.remedies] == [
        TryChange(Change.LARGER_BATCH),
        FuseOperations("torch", partly=False),
    ]


def test_nothing_is_counted_twice():
    found = summarise(trained()).parts[0]
    # Layers 5 + 60 + 30 and the optimizer's 10 of 120; data 5 and other 5 are apart, and 5 of forward and backward
    # belong to no layer.
    assert sum(work.cost.time.value for work in works(found)) == 105e6


def test_layers_of_a_fused_function_are_not_counted_beside_it():
    """They come from steps in pieces that took three times as long: together they would be 165 % of the step."""
    layers = [layer("a", "Conv2d", cost(80, "compute", 0.9))]
    found = summary([phase("data", bare(10)), phase("fused", cost(85, "compute", 0.5))], layers)
    assert [(work.name, work.layer) for work in works(found.parts[0])] == [("fused", False)]
    judged = compute.rule(found).finding
    assert judged.pieces == Pieces(phases=("fused",)) and judged.share.value == pytest.approx(0.85)
    assert judged.of_peak.ratio.value == pytest.approx(0.5)


@pytest.mark.parametrize(("precision", "framework", "advised"), [
    ("mixed_bfloat16", "torch", True), ("bf16", "torch", True), ("float32", "torch", False),
    ("float64", "torch", False), ("mixed_bfloat16", "tensorflow", False),
])  # fmt: skip
def test_a_short_type_that_is_slower_here_is_named(precision, framework, advised):
    slow = {**PEAKS, "bfloat16": Value(25e9, "FLOP/s", "measured"), "float64": Value(50e9, "FLOP/s", "measured")}
    about = {"name": "cnn", "precision": precision, "framework": framework}
    found = none.rule(summary([phase("forward", cost(90))], workload=about, ceilings={**CEILINGS, "peaks": slow}))
    named = [remedy.advice for remedy in found.remedies if isinstance(remedy.advice, UseFloat32)]
    assert [(one.instead_of, one.times) for one in named] == ([("bfloat16", 4.0)] if advised else [])


def test_a_whole_run_ends_in_its_verdicts():
    said = summarise(trained()).verdicts
    # Convolutions 60 of 120 ms, 50 at the peak; normalisations 30 ms, 23 at DRAM's bandwidth.
    first, second = (verdict.finding for verdict in said[:2])
    assert isinstance(first, ComputeBound) and first.share.value == pytest.approx(0.5)
    assert first.of_peak.ratio.value == pytest.approx(50 / 60)
    assert isinstance(second, MemoryBound) and second.share.value == pytest.approx(0.25)
    assert second.moved.value == pytest.approx(230e6) and second.of_bandwidth.ratio.value == pytest.approx(23 / 30)


class Entries:
    """Stands in for the installed entry points."""

    def __init__(self, *targets: str) -> None:
        self.entries = [EntryPoint(target.partition(":")[2], target, "sonda.rules") for target in targets]

    def __call__(self, group: str) -> list[EntryPoint]:
        assert group == "sonda.rules"
        return self.entries


def foreign_rule(found: Summary) -> Verdict:
    return Verdict("thermal", Remark("Throttled: the clock fell by half."), {}, share=0.99)


def broken_rule(found: Summary) -> Verdict:
    raise KeyError("clock")


def wordy_rule(found: Summary) -> str:
    return "slow"


def test_rules_of_others_join(monkeypatch):
    monkeypatch.setattr("importlib.metadata.entry_points", Entries(f"{__name__}:foreign_rule"))
    said, _ = verdicts(summary(layers=CONVOLUTIONS))
    assert [verdict.kind for verdict in said] == ["thermal", "compute"]


def test_a_rule_that_fails_is_a_warning(monkeypatch):
    broken = tuple(f"{__name__}:{rule}" for rule in ("broken_rule", "missing", "wordy_rule"))
    monkeypatch.setattr("importlib.metadata.entry_points", Entries(*broken))
    said, failures = verdicts(summary(layers=CONVOLUTIONS))
    assert [verdict.kind for verdict in said] == ["compute"]
    assert isinstance(failures[0], Remark) and isinstance(failures[1], Remark)
    assert failures[0].text.startswith(f"the rule broken_rule of {__name__}:broken_rule fails: KeyError: 'clock'")
    assert f"the rule missing of {__name__}:missing fails: AttributeError" in failures[1].text
    assert failures[2] == WrongVerdict("wordy_rule", f"{__name__}:wordy_rule", "str")
