"""Each rule firing and not firing, on constructed summaries."""

from __future__ import annotations

import dataclasses
from importlib.metadata import EntryPoint

import pytest

from builders import trained
from sonda.analysis.rules import compute, input, memory, none, overhead, verdicts
from sonda.analysis.rules import program as of_program
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


def test_a_step_that_is_hardly_known_is_not_judged():
    found = summary(layers=[layer("a", "Conv2d", cost(90, "compute", 0.8))])
    noisy = dataclasses.replace(found, parts=(dataclasses.replace(found.parts[0], noise=0.6),))
    (verdict,), _ = verdicts(noisy)
    assert verdict.sentence == "Too noisy to judge: the step is known only to ±60 %."
    assert verdicts(found)[0][0].kind == "compute"


@pytest.mark.parametrize(("count", "again", "advised"), [(12, 10, True), (12, 2, False), (0, 0, False)])
def test_code_that_is_compiled_again_and_again_should_be_compiled_once(count: int, again: int, advised: bool) -> None:
    """Compiling takes 80 of 100 s. Where most of it is of code that was compiled before, it is not paid once."""
    compiling = ProgramStage("compile", Value(80e9, "ns", "measured"), 0.8, count, again=again)
    steps = ProgramStage("train", Value(20e9, "ns", "measured"), 0.2, 40)
    whole = Program(Value(100e9, "ns", "measured"), (compiling, steps))
    verdict = of_program.rule(dataclasses.replace(summary(), program=whole))
    assert verdict is not None and verdict.kind == "compile"
    texts = [remedy.text for remedy in verdict.remedies]
    assert any("torch.compile(dynamic=True)" in text for text in texts) is advised
    assert any("paid once" in text for text in texts) is not advised


def options(verdict: Verdict) -> list[tuple[str, ...]]:
    return [remedy.options for remedy in verdict.remedies]


CONVOLUTIONS = [layer("a", "Conv2d", cost(40, "compute", 0.8)), layer("b", "Conv2d", cost(31, "compute", 0.78))]


def test_compute_bound_names_the_layers_their_share_and_the_peak():
    verdict = compute.rule(summary(layers=CONVOLUTIONS))
    # (40 * 0.8 + 31 * 0.78) / 71 = 0.7913.
    assert verdict.sentence == "Compute-bound in the convolutions: 71 % of the step at 79 % of this CPU's peak."
    assert verdict.kind == "compute"
    assert verdict.share == pytest.approx(0.71)
    assert verdict.evidence["of_peak"].value == pytest.approx((40 * 0.8 + 31 * 0.78) / 71)
    assert options(verdict) == [("--threads", "2"), ("--channels-last",), ("--precision", "mixed_bfloat16")]


def test_compute_bound_speaks_of_the_leading_families_only():
    layers = [*CONVOLUTIONS, layer("c", "Linear", cost(5, "compute", 0.6))]
    # Convolutions are 71 of 76: more than 80 %, so they alone are named; the share of the verdict is all of it.
    verdict = compute.rule(summary(layers=layers))
    assert "in the convolutions: 71 %" in verdict.sentence
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
    assert verdict.sentence == (
        "Memory-bound: 36 normalisations and activations move 3.1 GB a step at 91 % of DRAM bandwidth, "
        "18 % of the step."
    )
    assert options(verdict) == [("--compile",), ("--threads", "2"), ("--precision", "mixed_bfloat16")]


def test_memory_bound_names_the_cache_where_the_bytes_fit_in_it():
    verdict = memory.rule(summary(phases=[phase("optimizer", cost(30, "memory", 0.7, moved=8e6, cached=1.0))]))
    assert verdict.sentence == (
        "Memory-bound: the optimizer moves 8.0 MB a step at 70 % of last-level cache bandwidth, 30 % of the step."
    )
    assert verdict.evidence["bandwidth"].value == 40e9


def test_memory_does_not_fire_below_a_tenth_of_the_step():
    assert memory.rule(summary(layers=[layer("n", "BatchNorm2d", cost(9, "memory", 0.9, moved=1e9))])) is None


def test_overhead_bound_counts_operations_and_their_cost():
    # 412 operations, 0.8 of 61 ms: 118 µs each.
    verdict = overhead.rule(summary(layers=[layer("a", "Linear", cost(61, "overhead", 0.8, ops=412))]))
    assert verdict.sentence == (
        "Overhead-bound in the linear layers: 61 % of the step goes to 412 operations "
        "that cost 118 µs each, however small."
    )
    assert options(verdict) == [("--batch", "64"), ("--compile",)]


def test_overhead_does_not_fire_without_that_bound():
    assert overhead.rule(summary(layers=CONVOLUTIONS)) is None


def test_input_bound_above_a_fifth_of_the_step():
    verdict = input.rule(program([phase("data", bare(21))], CONVOLUTIONS, workload={"workers": 0}))
    assert verdict.sentence == "Input-bound: waiting for data takes 21 % of the step (21.0 ms)."
    assert [remedy.text for remedy in verdict.remedies] == ["load data in parallel: DataLoader(num_workers=2)"]


def of_tf_data(*stages: dict, **more) -> dict:
    """The workload of a program in TensorFlow whose training is fed by these stages, the last one first."""
    root = {"name": "Root", "elements": 40, "ns": 0}
    fed = {"part": "train", "stages": [root, *({"elements": 40, **stage} for stage in stages)]}
    return {"framework": "tensorflow", "loader": "tf.data", "prefetch": 2, "pipelines": [fed], **more}


def advice(workload: dict) -> list[str]:
    """For a training that waits 30 of 100 ms for its input."""
    found = program([phase("data", bare(30)), phase("fused", cost(70))], workload=workload)
    found = dataclasses.replace(found, pipelines=summarise_pipelines(found.workload))
    return [remedy.text for remedy in input.rule(found).remedies]


@pytest.mark.parametrize(
    ("workload", "texts"),
    [
        ({"framework": "tensorflow", "loader": "PyDataset", "workers": 0, "prefetch": -1},
         ["load data in parallel: PyDataset(workers=2)"]),
        ({"framework": "jax", "loader": "PyDataset", "workers": 0, "prefetch": 0},
         ["load data in parallel: PyDataset(workers=2)"]),
        ({"framework": "jax", "loader": "PyDataset", "workers": 1, "prefetch": 10},
         ["load data with more workers than 1: PyDataset(workers=2)"]),
        ({"framework": "jax", "loader": "PyDataset", "workers": 2, "prefetch": 10}, []),
        ({"framework": "tensorflow", "loader": "generator", "workers": 0, "prefetch": -1},
         ["load data in parallel: keras.utils.PyDataset(workers=2) in the place of the generator"]),
        ({"framework": "jax", "loader": "arrays", "workers": 0, "prefetch": 0},
         ["load ahead: a thread that makes the next batch"]),
        ({"framework": "tensorflow", "loader": "tf.data", "prefetch": 0},
         ["load ahead: Dataset.prefetch(2)", "load data in parallel: Dataset.map(…, num_parallel_calls=2)"]),
    ],
)  # fmt: skip
def test_what_is_advised_fits_what_loads(workload: dict, texts: list[str]) -> None:
    assert advice(workload) == texts


@pytest.mark.parametrize(
    ("name", "words", "how"),
    [
        ("MapAndBatch", "map and batch", "call it more often at once: Dataset.map(…, num_parallel_calls="),
        ("InterleaveV2", "interleave", "read more files at once: Dataset.interleave(…, num_parallel_calls="),
        ("Generator", "generator", "a generator gives one element at a time: do its work in Dataset.map("),
        ("TFRecord", "tfrecord", "read several files at once: Dataset.interleave(…, num_parallel_calls="),
    ],
)
def test_the_slowest_stage_of_tf_data_is_the_one_to_mend(name: str, words: str, how: str) -> None:
    """40 batches in 1.2 s are 30 ms each, which is what is waited for."""
    (text,) = advice(of_tf_data({"name": "Prefetch", "ns": 1e6}, {"name": name, "ns": 1.2e9}))
    assert text.startswith(f"make {words} faster, the slowest stage: {how}")


def test_a_stage_that_takes_less_than_half_of_the_wait_does_not_explain_it() -> None:
    texts = advice(of_tf_data({"name": "Prefetch", "ns": 1e6}, {"name": "Map", "ns": 0.5e9}))
    assert texts == ["load data in parallel: Dataset.map(…, num_parallel_calls=2)"]


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
    (text,) = advice(of_tf_data({"name": "Prefetch", "ns": 1e6}, {"name": name, "ns": 2.4e9, "parallel": 2}))
    assert text == (
        f"make {words} faster, the slowest stage: it makes 2 calls at once already; do less in it, or keep what it "
        "gives: Dataset.cache()"
    )


def test_input_bound_as_the_largest_explained_share():
    assert input.rule(program([phase("data", bare(15))], [layer("a", "Linear", cost(85))])) is not None


def test_input_does_not_fire_when_something_else_explains_more():
    assert input.rule(program([phase("data", bare(15))], CONVOLUTIONS)) is None


def test_input_does_not_fire_for_a_tiny_share_though_nothing_else_is_explained():
    assert input.rule(program([phase("data", bare(5))], [layer("a", "Linear", cost(95))])) is None


def test_no_clear_limit_names_what_takes_most():
    verdict = none.rule(summary([phase("other", bare(10))], [layer("a", "Conv2d", cost(90, "", 0.4))]))
    assert verdict.sentence == (
        "No clear limit: the convolutions take 90 % of the step and reach 40 % of the roof. "
        "Neither arithmetic, memory traffic, overhead nor input explains half of that."
    )
    assert ("--channels-last",) in options(verdict)


def test_one_phase_takes_and_reaches():
    found = none.rule(summary(phases=[phase("optimizer", cost(90, reached=0.4))]))
    assert found is not None and "the optimizer takes 90 % of the step and reaches 40 % of the roof" in found.sentence


def test_no_clear_limit_names_time_outside_every_phase():
    verdict = none.rule(summary([phase("other", bare(70))], [layer("a", "Conv2d", cost(30, "compute", 0.8))]))
    assert "70 % of the step lies between the phases: Python code, and the observing itself" in verdict.sentence


def test_no_limit_can_be_named_without_ceilings():
    reason = "the machine's ceilings were not measured"
    found = summary([phase("forward", bare(60)), phase("backward", bare(40))], ceilings={"reason": reason})
    assert none.rule(found).sentence == f"No limit can be named: {reason}. 60 % of the step is forward."


def test_none_does_not_fire_when_half_of_the_step_is_explained():
    assert none.rule(summary(layers=[layer("a", "Conv2d", cost(50, "compute", 0.8))])) is None


def test_verdicts_come_by_share_and_the_second_begins_with_then():
    layers = [*CONVOLUTIONS, layer("n", "BatchNorm2d", cost(20, "memory", 0.9, moved=1e9))]
    said, failures = verdicts(summary(layers=layers))
    assert [verdict.kind for verdict in said] == ["compute", "memory"]
    assert said[0].sentence.startswith("Compute-bound")
    assert said[1].sentence.startswith("Then memory-bound: 1 normalisation moves")
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
    assert "with 2 workers takes 30 %" in verdict.sentence
    assert verdict.remedies == ()


def test_batch_is_not_offered_where_there_is_none():
    layers = [layer("a", "Linear", cost(61, "overhead", 0.8))]
    assert options(overhead.rule(summary(layers=layers, workload={"name": "net.py:build"}))) == [("--compile",)]


def test_programs_get_advice_in_words():
    layers = [layer("a", "Linear", cost(61, "overhead", 0.8))]
    verdict = overhead.rule(summary(layers=layers, target={"spec": "", "threads": 2}))
    assert options(verdict) == [(), ()]
    assert [remedy.text for remedy in verdict.remedies] == [
        "process more samples per step: a larger batch",
        "fuse operations: torch.compile(model)",
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
    assert compute.rule(found).sentence.startswith("Compute-bound in the fused function: 85 % of the step at 50 % of")


@pytest.mark.parametrize(("precision", "framework", "advised"), [
    ("mixed_bfloat16", "torch", True), ("bf16", "torch", True), ("float32", "torch", False),
    ("float64", "torch", False), ("mixed_bfloat16", "tensorflow", False),
])  # fmt: skip
def test_a_short_type_that_is_slower_here_is_named(precision, framework, advised):
    slow = {**PEAKS, "bfloat16": Value(25e9, "FLOP/s", "measured"), "float64": Value(50e9, "FLOP/s", "measured")}
    about = {"name": "cnn", "precision": precision, "framework": framework}
    found = none.rule(summary([phase("forward", cost(90))], workload=about, ceilings={**CEILINGS, "peaks": slow}))
    said = ["compute in float32: products of bfloat16 are 4.0 times slower here"] if advised else []
    assert [one.text for one in found.remedies if "float32" in one.text] == said


def test_a_whole_run_ends_in_its_verdicts():
    said = summarise(trained()).verdicts
    # Convolutions 60 of 120 ms, 50 at the peak; normalisations 30 ms, 23 at DRAM's bandwidth.
    assert said[0].sentence == "Compute-bound in the convolutions: 50 % of the step at 83 % of this CPU's peak."
    assert said[1].sentence == (
        "Then memory-bound: 1 normalisation moves 230 MB a step at 77 % of DRAM bandwidth, 25 % of the step."
    )


class Entries:
    """Stands in for the installed entry points."""

    def __init__(self, *targets: str) -> None:
        self.entries = [EntryPoint(target.partition(":")[2], target, "sonda.rules") for target in targets]

    def __call__(self, group: str) -> list[EntryPoint]:
        assert group == "sonda.rules"
        return self.entries


def foreign_rule(found: Summary) -> Verdict:
    return Verdict("thermal", "Throttled: the clock fell by half.", {}, share=0.99)


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
    assert failures[0].startswith(f"the rule broken_rule of {__name__}:broken_rule fails: KeyError: 'clock'")
    assert f"the rule missing of {__name__}:missing fails: AttributeError" in failures[1]
    assert failures[2] == f"the rule wordy_rule of {__name__}:wordy_rule gives a str, not a Verdict"
