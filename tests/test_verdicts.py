"""Each rule firing and not firing, on constructed summaries."""

from __future__ import annotations

import dataclasses
from importlib.metadata import EntryPoint

import pytest

from builders import trained
from sonda.analysis.rules import compute, input, memory, none, overhead, verdicts
from sonda.analysis.rules.work import works
from sonda.analysis.summarise import summarise
from sonda.analysis.summary import Cost, LayerRow, PartSummary, PhaseRow, Summary, Value, Verdict

STEP = 100e6
PEAKS = {
    "float32": Value(100e9, "FLOP/s", "measured"),
    "bfloat16": Value(300e9, "FLOP/s", "measured"),
}
CEILINGS = {
    "flops": PEAKS["float32"],
    "dram_bandwidth": Value(10e9, "B/s", "measured"),
    "cache_bandwidth": Value(40e9, "B/s", "measured"),
    "peaks": PEAKS,
}
MISSING = Value(None, "1", "derived", reason="no operation was counted here")


def cost(
    percent: float, bound: str = "", reached: float = 0.0, moved: float = 0.0, cached: float = 0.0, ops: float = 4
):
    """Work that takes `percent` of a step of 100 ms, of which `reached` is what its bound explains."""
    time = percent / 100 * STEP
    limits = {"compute": 0.0, "memory": 0.0, "overhead": 0.0}
    if bound:
        limits[bound] = reached * time
    return Cost(
        time=Value(time, "ns", "measured"), share=percent / 100, flops=Value(1e9, "FLOP", "nominal"),
        bytes=Value(moved, "B", "nominal"), achieved=MISSING, bandwidth=MISSING, roof=Value(reached, "1", "derived"),
        bound=bound, operations=Value(ops, "1", "counted"), limits=limits, cached=cached,
    )  # fmt: skip


def bare(percent: float) -> Cost:
    """Time in which nothing was counted."""
    return dataclasses.replace(cost(percent), flops=MISSING, roof=MISSING, operations=MISSING, limits={})


def layer(path: str, name: str, found: Cost) -> LayerRow:
    time = found.time
    return LayerRow(path, name, 1, True, 1, time, MISSING, time, found, MISSING, found)


def phase(name: str, found: Cost) -> PhaseRow:
    return PhaseRow(name, found, MISSING)


def summary(phases: list[PhaseRow] = (), layers: list[LayerRow] = (), **more) -> Summary:
    value = Value(STEP, "ns", "measured")
    part = PartSummary(
        "train", value, 20, 0, (STEP,) * 20, 0.01, MISSING, MISSING, tuple(phases), tuple(layers), {},
    )  # fmt: skip
    fields = {
        "ceilings": CEILINGS,
        "workload": {"name": "cnn", "batch": 16, "train": True},
        "target": {"spec": "cpu", "threads": 1, "device": "cpu"},
        "machine": {"effective_cores": 2},
    }
    return Summary("7f3a", "", "", "complete", (part,), (), (), notes=(), **{**fields, **more})


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
    monkeypatch.setattr("importlib.metadata.entry_points", Entries("test_verdicts:foreign_rule"))
    said, _ = verdicts(summary(layers=CONVOLUTIONS))
    assert [verdict.kind for verdict in said] == ["thermal", "compute"]


def test_a_rule_that_fails_is_a_warning(monkeypatch):
    broken = ("test_verdicts:broken_rule", "test_verdicts:missing", "test_verdicts:wordy_rule")
    monkeypatch.setattr("importlib.metadata.entry_points", Entries(*broken))
    said, failures = verdicts(summary(layers=CONVOLUTIONS))
    assert [verdict.kind for verdict in said] == ["compute"]
    assert failures[0].startswith("the rule broken_rule of test_verdicts:broken_rule fails: KeyError: 'clock'")
    assert "the rule missing of test_verdicts:missing fails: AttributeError" in failures[1]
    assert failures[2] == "the rule wordy_rule of test_verdicts:wordy_rule gives a str, not a Verdict"
