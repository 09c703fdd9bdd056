"""Causes that counted steps show: planted facts, and what follows from them by hand. A step takes 100 ms."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from sonda.analysis.rules.advice import Change, TryChange
from sonda.analysis.rules.judge import verdicts
from sonda.analysis.rules.limits import good
from sonda.analysis.rules.operations import (
    allocation,
    copies,
    denormals,
    dominating_layer,
    double_precision,
    graph_breaks,
    memory_bound,
    memory_format,
    micro_batch,
    optimizer,
    recompilation,
    repeated_forward,
    tiny_operations,
    unused_gradients,
)
from sonda.analysis.rules.operations.evidence import evidence_of
from sonda.analysis.rules.program import checkpointing, imbalance, validation
from sonda.analysis.steps.program import Program, ProgramStage
from sonda.analysis.summary import LayerRow, RankPhases, Summary, Value, Verdict
from sonda.record.evidence import Compilations, StepEvidence
from sonda.record.target import ProgramTarget, RanksTarget
from sonda.report.words import describe
from verdicts_cases import CEILINGS, MISSING, STEP, cost, layer, phase, summary

MS = 1e6
OPERATIONS = {"operation": Value(1_000.0, "ns", "measured"), "training_operation": Value(5_000.0, "ns", "measured")}
PHASES = [phase("forward", cost(30)), phase("backward", cost(60)), phase("optimizer", cost(10))]


def layer_with(path: str, name: str, forward: float, backward: float, bound: str = "") -> LayerRow:
    """A layer whose forward and backward take so many percent of the step."""
    row = layer(path, name, cost(forward + backward, bound, 0.8 if bound else 0.1))
    return dataclasses.replace(
        row,
        forward=Value(forward / 100 * STEP, "ns", "measured"),
        backward=Value(backward / 100 * STEP, "ns", "measured") if backward else MISSING,
    )


LAYERS = [layer_with("body", "Linear", 20, 40), layer_with("head", "Linear", 10, 20)]


def judged(phases=PHASES, layers=LAYERS, facts=None, **evidence) -> Summary:
    """A program whose counted step showed this."""
    step = msgspec.convert({"part": "train", "start": 1, **evidence}, StepEvidence)
    whole = summary(
        phases, layers, ceilings={**CEILINGS, **OPERATIONS},
        workload={"name": "program", "framework": "torch", "train": True, **(facts or {})},
        target={"spec": "", "threads": 1, "device": "cpu"},
    )  # fmt: skip
    return dataclasses.replace(whole, workload=msgspec.structs.replace(whole.workload, evidence=[step]))


def group(ns: float, operations: int = 1, **more) -> dict:
    return {"phase": "forward", "operations": operations, "ns": int(ns), **more}


def share_of(verdict: Verdict | None) -> float:
    assert verdict is not None
    assert describe(verdict.finding).endswith(".")
    assert all(describe(remedy.advice) for remedy in verdict.remedies) and verdict.remedies
    return verdict.share


def test_the_time_of_a_layer_is_shared_as_in_the_counted_step() -> None:
    """Counting disturbs times: 3 of 4 ms of the layer's operations are three quarters of its 60 ms."""
    evidence = evidence_of(judged(groups=[group(3 * MS, layer="body", family="copy"), group(1 * MS, layer="body")]))
    assert evidence is not None
    assert evidence.time(lambda group: group.family == "copy") == pytest.approx(45 * MS)


def test_operations_outside_of_phases_have_no_more_than_they_took() -> None:
    phases = [*PHASES[:2], phase("other", cost(10))]
    evidence = evidence_of(judged(phases, groups=[{"phase": "", "operations": 1, "ns": int(2 * MS)}]))
    assert evidence is not None and evidence.time(lambda group: True) == pytest.approx(2 * MS)


def test_a_run_without_evidence_has_no_causes() -> None:
    spoken, _ = verdicts(summary(PHASES, LAYERS))
    assert [verdict.kind for verdict in spoken] == ["none"]


# ---- gradients and forwards ------------------------------------------------------------------------------------------


def test_the_backward_of_a_frozen_part_is_for_nothing() -> None:
    verdict = unused_gradients.rule(judged(thrown=[{"layer": "body", "part": 1.0, "first": True}]))
    assert share_of(verdict) == pytest.approx(0.40)
    assert verdict is not None and "body.requires_grad_(False)" in describe(verdict.remedies[0].advice)


def test_an_inference_that_computes_forwards_again() -> None:
    """Four tenths of the time of the forwards that were looked at."""
    again = {"looked": 60, "lasted": 1000, "forwards": [{"layer": "", "times": 30, "ns": 400, "line": "answer.py:13"}]}
    seen = judged(facts={"repeated_forwards": again, "train": False})
    step = msgspec.convert({"part": "test", "start": 1}, StepEvidence)
    inference = dataclasses.replace(
        seen,
        parts=(dataclasses.replace(seen.parts[0], name="test"),),
        workload=msgspec.structs.replace(seen.workload, evidence=[step]),
    )
    verdict = repeated_forward.rule(inference)
    assert share_of(verdict) == pytest.approx(0.4)
    assert verdict is not None and verdict.finding.place.line == "answer.py:13"
    assert repeated_forward.rule(seen) is None, "of a training the evaluation is the lesser part"


def test_unused_gradients_are_named_where_their_part_is_called() -> None:
    thrown = [{"layer": "body.1", "part": 1.0, "first": True}, {"layer": "body.2", "part": 1.0, "first": True}]
    layers = [*LAYERS, *(dataclasses.replace(LAYERS[0], path=path) for path in ("body.1", "body.2"))]
    called = {"body": "net.py:20", "body.1": "parts.py:4", "body.2": "parts.py:4"}
    verdict = unused_gradients.rule(judged(layers=layers, thrown=thrown, call_lines=called))
    assert verdict is not None and verdict.finding.place.line == "net.py:20"
    verdict = unused_gradients.rule(judged(layers=layers, thrown=thrown[:1], call_lines={"body.1": "parts.py:4"}))
    assert verdict is not None and verdict.finding.place.line == "parts.py:4"


def test_behind_trained_layers_only_the_gradients_of_weights_are() -> None:
    """Its input needs a gradient: half of the 40 %."""
    assert share_of(unused_gradients.rule(judged(thrown=[{"layer": "body", "part": 1.0}]))) == pytest.approx(0.20)


def test_a_third_of_few_gradients_is_not_worth_a_sentence() -> None:
    assert unused_gradients.rule(judged(thrown=[{"layer": "head", "part": 1 / 3, "first": True}])) is None


def test_a_graph_costs_a_node_for_every_operation() -> None:
    """2,000 operations of 5 - 1 µs are 8 ms of 100."""
    graphs = [{"layer": "body", "calls": 1, "unused": 1, "line": "train.py:7"}]
    verdict = unused_gradients.rule(judged(graphs=graphs, groups=[group(9 * MS, 2000, layer="body")]))
    assert share_of(verdict) == pytest.approx(0.08)
    assert verdict is not None and "train.py:7" in describe(verdict.finding)


def test_a_forward_made_twice_is_half_of_its_time() -> None:
    """20 % forward and 40 % backward, each for two calls."""
    repeated = [{"layer": "body", "calls": 2, "repeated": 1, "line": "train.py:9"}]
    verdict = repeated_forward.rule(judged(repeated=repeated))
    assert share_of(verdict) == pytest.approx(0.30)
    assert verdict is not None and "train.py:9" in describe(verdict.remedies[0].advice)


def test_a_repeated_forward_whose_graph_is_unused_has_no_backward() -> None:
    repeated = [{"layer": "body", "calls": 2, "repeated": 1}]
    graphs = [{"layer": "body", "calls": 2, "unused": 1}]
    assert share_of(repeated_forward.rule(judged(repeated=repeated, graphs=graphs))) == pytest.approx(0.10)


def test_parts_of_a_repeated_module_are_counted_once() -> None:
    layers = [*LAYERS, layer_with("body.0", "Linear", 15, 30)]
    repeated = [{"layer": path, "calls": 2, "repeated": 1} for path in ("body", "body.0")]
    assert share_of(repeated_forward.rule(judged(layers=layers, repeated=repeated))) == pytest.approx(0.30)


# ---- small operations ------------------------------------------------------------------------------------------------


def test_a_loop_makes_tiny_operations() -> None:
    """10,000 operations without work: at most four times their 5 µs each, which is all of the layer's 60 ms."""
    own = [dataclasses.replace(row, name="Recurrence") for row in LAYERS]
    groups = [group(60 * MS, 10_000, layer="body", line="rnn.py:8")]
    verdict = tiny_operations.rule(judged(layers=own, groups=groups, batch=4))
    assert share_of(verdict) == pytest.approx(0.60)
    assert verdict is not None and "rnn.py:8" in describe(verdict.finding)
    assert micro_batch.rule(judged(layers=own, groups=groups, batch=4)) is None


@pytest.mark.parametrize(("name", "calls", "kind"), [("LSTMCell", 1_000, "tiny"), ("LSTM", 1, "micro")])
def test_a_cell_is_called_in_a_loop_and_a_recurrent_layer_is_not(name: str, calls: int, kind: str) -> None:
    """Ten operations a call of the cell; the layer makes all of them in one."""
    layers = [dataclasses.replace(LAYERS[0], name=name, calls=calls), LAYERS[1]]
    seen = judged(layers=layers, groups=[group(60 * MS, 10_000, layer="body", line="rnn.py:8")], batch=4)
    assert (tiny_operations.rule(seen) is not None) == (kind == "tiny")
    assert (micro_batch.rule(seen) is not None) == (kind == "micro")


def test_few_samples_and_no_loop_are_a_micro_batch() -> None:
    """Of 2,000 operations 20 µs each are overhead at most: 40 ms. With 32 samples a step instead of 2 there are 1/16 of
    the steps, and of the overhead."""
    lines = [group(1 * MS, 40, layer="body", line=f"net.py:{number}") for number in range(50)]
    verdict = micro_batch.rule(judged(groups=lines, batch=2))
    assert share_of(verdict) == pytest.approx(0.40 * 15 / 16)
    assert tiny_operations.rule(judged(groups=lines, batch=2)) is None
    loaded = micro_batch.rule(judged(groups=lines, batch=2, facts={"loader_line": "train.py:20"}))
    assert loaded is not None and "(train.py:20)" in describe(loaded.finding), "there the batch can be changed"


def test_a_usual_batch_is_no_micro_batch() -> None:
    lines = [group(1 * MS, 40, layer="body", line=f"net.py:{number}") for number in range(50)]
    assert micro_batch.rule(judged(groups=lines, batch=256)) is None
    assert tiny_operations.rule(judged(groups=lines, batch=256)) is not None


def test_operations_with_work_are_not_small() -> None:
    """1 GFLOP at 100 GFLOP/s is 10 ms."""
    groups = [group(60 * MS, 100, layer="body", flops=1e9)]
    assert tiny_operations.rule(judged(groups=groups, batch=2)) is None
    assert micro_batch.rule(judged(groups=groups, batch=2)) is None


# ---- the optimizer ---------------------------------------------------------------------------------------------------

HEAVY = [phase("forward", cost(20)), phase("backward", cost(20)), phase("optimizer", cost(60))]


def test_rows_without_gradients_need_no_update() -> None:
    """Nine tenths of the elements are the table's, of whose rows 99 % have no gradient."""
    table = {"layer": "body", "rows": 100_000, "elements": 9_000_000, "untouched": 0.99}
    layers = [layer_with("body", "Embedding", 5, 10), layer_with("head", "Linear", 15, 10)]
    update = {"optimizer": "Adam", "elements": 10_000_000, "tables": [table]}
    verdict = optimizer.rule(judged(HEAVY, layers, updates=[update]))
    assert share_of(verdict) == pytest.approx(0.99 * (0.60 * 0.9 + 0.10))


def test_an_update_in_one_pass_moves_weights_and_states_once() -> None:
    """1 M weights with 2 M states of 4 B: 28 MB at 10 GB/s are 2.8 ms of the 60."""
    update = {"optimizer": "Adam", "tensors": 200, "elements": 10**6, "states": 2 * 10**6, "can_fuse": True}
    verdict = optimizer.rule(judged(HEAVY, updates=[update]))
    assert share_of(verdict) == pytest.approx(0.60 - 0.028)
    assert optimizer.rule(judged(HEAVY, updates=[{**update, "fused": True}])) is None
    assert optimizer.rule(judged(PHASES, updates=[update])) is None


def test_an_optimizer_on_another_device_is_told() -> None:
    update = {"optimizer": "SGD", "elements": 10, "elsewhere": True}
    assert share_of(optimizer.rule(judged(HEAVY, updates=[update]))) == pytest.approx(0.60)


# ---- what operations compute with ------------------------------------------------------------------------------------


def test_half_of_the_bits_take_half_of_the_time() -> None:
    """60 % of the step in 64 bits, less 1 µs of overhead for each of ten operations."""
    verdict = double_precision.rule(judged(groups=[group(60 * MS, 10, layer="body", bits=64, family="product")]))
    assert share_of(verdict) == pytest.approx((0.60 - 0.0001) / 2)
    assert double_precision.rule(judged(groups=[group(60 * MS, 10, layer="body", bits=32)])) is None


def test_a_wide_matrix_with_most_weights_dominates() -> None:
    """It holds nine tenths of the weights, and so of their update, which takes a tenth of the step."""
    layers = [
        layer_with("flat", "Linear", 30, 50),
        layer_with("conv", "Conv2d", 5, 5),
        layer_with("out", "Linear", 1, 1),
    ]
    sizes = [
        {"layer": "flat", "weights": 9_000, "inputs": 16_384, "outputs": 512},
        {"layer": "conv", "weights": 500, "kernel": 3},
        {"layer": "out", "weights": 500, "inputs": 512, "outputs": 10},
    ]
    verdict = dominating_layer.rule(judged(layers=layers, sizes=sizes))
    assert share_of(verdict) == pytest.approx(0.80 + 0.9 * 0.10 - 0.10)
    square = [{**sizes[0], "inputs": 1024, "outputs": 512}, *sizes[1:]]
    assert dominating_layer.rule(judged(layers=layers, sizes=square)) is None


def test_one_pass_in_place_of_a_chain() -> None:
    """Eight operations move 400 MB each way: seven of eight passes are saved, of 60 % of the step."""
    chain = [group(60 * MS, 8, layer="body", family="pointwise", bytes=4e8, line="act.py:3")]
    own = [dataclasses.replace(row, name="Squash") for row in LAYERS]
    verdict = memory_bound.rule(judged(layers=own, groups=chain))
    assert share_of(verdict) == pytest.approx(0.60 * 7 / 8)
    single = [group(60 * MS, 1, layer="body", family="pointwise", bytes=4e8)]
    assert memory_bound.rule(judged(layers=own, groups=single)) is None
    built_in = [dataclasses.replace(row, name="Dropout") for row in LAYERS]
    assert memory_bound.rule(judged(layers=built_in, groups=chain)) is None, "no line can change it"


def test_a_chain_ends_at_a_product() -> None:
    """Two lines of four operations each on elements, one below the other, and a product in the second: two passes stay
    of eight. Without the product one does."""
    own = [dataclasses.replace(row, name="Squash") for row in LAYERS]
    lines = [group(30 * MS, 4, layer="body", family="pointwise", bytes=4e8, line=f"act.py:{row}") for row in (3, 4)]
    product = group(0, 1, layer="body", family="product", line="act.py:4")
    assert share_of(memory_bound.rule(judged(layers=own, groups=lines))) == pytest.approx(0.60 * 7 / 8)
    assert share_of(memory_bound.rule(judged(layers=own, groups=[*lines, product]))) == pytest.approx(0.60 * 6 / 8)


def test_a_backward_goes_through_as_many_chains_as_its_forward() -> None:
    """Two chains of the forward, 20 of 60 % of the step, and eight operations of their backward, the other 40 %."""
    own = [dataclasses.replace(row, name="Squash") for row in LAYERS]
    lines = [group(10 * MS, 4, layer="body", family="pointwise", bytes=4e8, line=f"act.py:{row}") for row in (3, 40)]
    back = {**group(40 * MS, 8, layer="body", family="pointwise", bytes=8e8, line="train.py:9"), "phase": "backward"}
    verdict = memory_bound.rule(judged(layers=own, groups=[*lines, back]))
    assert share_of(verdict) == pytest.approx(0.20 * 6 / 8 + 0.40 * 6 / 8)


def uneven(*works: float, within: float = 1.0, mode: str = "ddp", few: int = 0) -> Summary:
    """Ranks that work so many percent of a step, known within so many, of `few` steps."""
    missing = Value(None, "FLOP", "nominal", reason="nothing was counted")
    step = Value(STEP, "ns", "measured")

    def known(work: float) -> Value:
        ends = ((work - within) / 100 * STEP, (work + within) / 100 * STEP)
        return Value(work / 100 * STEP, "ns", "measured", *ends)

    def lag(work: float) -> Value:
        percent = work - sum(works) / len(works)
        return Value(percent / 100, "1", "derived", (percent - within) / 100, (percent + within) / 100, few=few)

    ranks = tuple(
        RankPhases(rank, "cpu", "", step, known(work), {}, missing, 20, work == max(works), lag(work))
        for rank, work in enumerate(works)
    )
    seen = judged()
    part = dataclasses.replace(seen.parts[0], ranks=ranks)
    return dataclasses.replace(seen, parts=(part,), target=RanksTarget(spec="", device="cpu", mode=mode))


def test_ranks_that_wait_for_the_one_that_works_longest() -> None:
    """Even work would be 70 % of the step for each: 20 % less than the 90 of the slowest."""
    verdict = imbalance.rule(uneven(50, 90))
    assert share_of(verdict) == pytest.approx(0.20)
    assert verdict is not None and "rank 1" in describe(verdict.finding)
    assert imbalance.rule(uneven(80, 90)) is None
    assert imbalance.rule(uneven(90)) is None
    assert imbalance.rule(judged()) is None
    assert imbalance.rule(uneven(50, 90, within=25)) is None, "two readings of the same"
    assert imbalance.rule(uneven(100, 99, 98, 30, within=20)) is None, "one is idle, and none is slow for sure"
    assert imbalance.rule(uneven(50, 90, few=5)) is None, "of five steps nobody knows"
    staged = imbalance.rule(uneven(50, 90, mode="pipeline"))
    assert staged is not None and "layers" in describe(staged.remedies[0].advice)


def test_copies_take_what_their_operations_take() -> None:
    groups = [group(10 * MS, 4, layer="body", family="copy", bytes=1e8), group(20 * MS, layer="body")]
    assert share_of(copies.rule(judged(groups=groups))) == pytest.approx(0.20)
    assert copies.rule(judged(groups=groups, facts={"autocast": "bfloat16"})) is None


def test_strided_operands_cost_what_memory_does_not_explain() -> None:
    """100 MB at 10 GB/s are 10 of the 60 ms, and one operation 1 µs."""
    groups = [group(5 * MS, layer="body", bytes=1e8, strided=9e7, line="net.py:5")]
    assert share_of(memory_format.rule(judged(groups=groups))) == pytest.approx(0.50 - 0.00001)
    assert memory_format.rule(judged(groups=[group(5 * MS, layer="body", bytes=1e8)])) is None


def test_convolutions_that_are_faster_with_channels_last() -> None:
    """The layer's 60 ms would be 30 at half of the time: its backward is taken for what its forward is."""
    own = [dataclasses.replace(row, name="Conv2d") for row in LAYERS]
    tried = {"phase": "forward", "layer": "body", "line": "net.py:5", "ns": int(3 * MS), "times": 2.0}
    verdict = memory_format.rule(judged(layers=own, formats=[tried]))
    assert share_of(verdict) == pytest.approx(0.30)
    assert verdict is not None and verdict.remedies[0].advice == TryChange(Change.CHANNELS_LAST)
    assert memory_format.rule(judged(layers=own, formats=[{**tried, "times": 1.3}])) is None, "14 % of the step"
    assert memory_format.rule(judged(layers=own, formats=[{**tried, "times": 0.5}])) is None, (
        "channels first are faster"
    )


def test_subnormal_numbers_cost_what_was_measured() -> None:
    """A root that takes 30 of the layer's 60 ms, 31 times as long as with other numbers."""
    slow = {"phase": "forward", "layer": "body", "name": "aten.sqrt", "ns": int(3 * MS), "part": 1.0, "times": 31}
    groups = [group(6 * MS, layer="body")]
    verdict = denormals.rule(judged(groups=groups, subnormal=[slow]))
    assert share_of(verdict) == pytest.approx(0.30 * 30 / 31)
    assert denormals.rule(judged(groups=groups, subnormal=[{**slow, "times": 1.05}])) is None


def test_subnormal_states_slow_one_operation_of_ten() -> None:
    """A root 31 times as slow makes ten operations take four times as long."""
    found = {"places": [{"layer": "", "what": "state", "part": 1.0}], "root_times": 31}
    assert share_of(denormals.rule(judged(HEAVY, facts={"denormals": found}))) == pytest.approx(0.60 * 3 / 4)


def test_page_faults_take_their_number_times_their_cost() -> None:
    facts = {"fault_ns": 500.0, "step_faults": 40_000.0}
    asks = {"phase": "", "family": "creation", "operations": 1, "ns": int(MS), "bytes": 1e8, "line": "train.py:3"}
    groups = [asks]
    assert share_of(allocation.rule(judged(facts=facts, groups=groups))) == pytest.approx(0.20)
    assert allocation.rule(judged(facts={**facts, "step_faults": 400.0}, groups=groups)) is None
    assert allocation.rule(judged(facts=facts)) is None, "of no line"
    result = [{**asks, "family": "pointwise"}]
    assert allocation.rule(judged(facts=facts, groups=result)) is None, "results are new memory in any program"


# ---- the whole program -----------------------------------------------------------------------------------------------


def with_validations(walks: int, total: float) -> Summary:
    whole = judged()
    train = dataclasses.replace(whole.parts[0], total=Value(100 * STEP, "ns", "measured"), steps=100)
    other = dataclasses.replace(train, name="validate", walks=walks, total=Value(total * STEP, "ns", "measured"))
    return dataclasses.replace(whole, parts=(train, other))


def test_validations_that_take_as_long_as_the_training() -> None:
    assert share_of(validation.rule(with_validations(50, 100))) == pytest.approx(0.50)


@pytest.mark.parametrize(("walks", "total"), [(2, 100), (50, 10)])
def test_seldom_or_short_validations_are_none(walks: int, total: float) -> None:
    assert validation.rule(with_validations(walks, total)) is None


def test_files_of_weights_that_take_a_third_of_the_time() -> None:
    def with_files(seconds: float, files: int) -> Summary:
        stages = tuple(
            ProgramStage(name, Value(1e9 * time, "ns", "measured"), time / 10, count, line=line)
            for name, time, count, line in (("train", 4.0, 100, ""), ("checkpoints", seconds, files, "train.py:30"))
        )
        return dataclasses.replace(judged(), program=Program(Value(1e10, "ns", "measured"), stages))

    verdict = checkpointing.rule(with_files(2.0, 100))
    assert share_of(verdict) == pytest.approx(1 / 3)
    assert verdict is not None and "train.py:30" in describe(verdict.finding)
    assert checkpointing.rule(with_files(2.0, 2)) is None
    assert checkpointing.rule(with_files(0.1, 100)) is None


def test_compiling_again_is_lost_time() -> None:
    whole = with_validations(1, 0)  # steps of 10 s in all
    function = {"function": "step", "line": "train.py:3", "times": 8, "seconds": 6.0, "again": 5.0, "reason": "shape"}

    def compiled(**changed: object) -> Summary:
        facts = msgspec.convert({"functions": [{**function, **changed}]}, Compilations)
        return dataclasses.replace(whole, workload=msgspec.structs.replace(whole.workload, compilations=facts))

    assert share_of(recompilation.rule(compiled())) == pytest.approx(0.50)
    assert recompilation.rule(compiled(times=2)) is None
    assert recompilation.rule(compiled(again=0.5)) is None


def test_pieces_that_are_compiled_again_are_said_of_the_break() -> None:
    """5 of 10 s go into compiling a function again in which its graph breaks, or what is left of it behind the break;
    a break in another function, which begins behind it, explains nothing."""
    whole = with_validations(1, 0)
    function = {"function": "step", "line": "train.py:3", "times": 8, "seconds": 6.0, "again": 5.0}
    rest = {**function, "function": "torch_dynamo_resume_in_step_at_9"}

    def broken_at(line: int, again: dict = function) -> Summary:
        other = {"function": "other", "line": "train.py:15", "times": 1, "seconds": 1.0}
        breaks = [{"line": f"train.py:{line}", "reason": "item()", "times": 1}]
        facts = msgspec.convert({"functions": [again, other], "breaks": breaks}, Compilations)
        workload = msgspec.structs.replace(whole.workload, compilations=facts)
        part = dataclasses.replace(whole.parts[0], phases=(phase("forward", cost(60)), phase("backward", cost(40))))
        return dataclasses.replace(whole, workload=workload, parts=(part, *whole.parts[1:]))

    assert recompilation.rule(broken_at(9)) is None and recompilation.rule(broken_at(30, rest)) is None
    assert share_of(graph_breaks.rule(broken_at(9))) == pytest.approx(0.50)
    assert share_of(recompilation.rule(broken_at(20))) == pytest.approx(0.50)


def test_graph_breaks_explain_small_operations() -> None:
    groups = [group(60 * MS, 10_000, layer="body", line="net.py:8")]
    facts = {"compilations": {"breaks": [{"line": "net.py:8", "reason": "item()", "times": 1}]}}
    broken = judged(groups=groups, facts=facts)
    assert share_of(graph_breaks.rule(broken)) == pytest.approx(0.60)
    assert tiny_operations.rule(broken) is None and graph_breaks.rule(judged(groups=groups)) is None


# ---- order -----------------------------------------------------------------------------------------------------------


def test_a_cause_comes_before_the_limit_of_the_work() -> None:
    layers = [layer_with("body", "Linear", 20, 40, "compute"), layer_with("head", "Linear", 10, 20, "compute")]
    spoken, _ = verdicts(judged(layers=layers, thrown=[{"layer": "body", "part": 1.0}]))
    assert [verdict.kind for verdict in spoken] == ["unused_gradients", "compute"]


def test_a_program_near_the_roof_is_good() -> None:
    layers = [layer_with("body", "Linear", 20, 40, "compute"), layer_with("head", "Linear", 10, 20, "compute")]
    program = judged(layers=layers, batch=256)
    assert share_of_good(program) == pytest.approx(0.72)
    assert [verdict.kind for verdict in verdicts(program)[0]] == ["good", "compute"]
    assert good.rule(judged()) is None


def share_of_good(program: Summary) -> float:
    verdict = good.rule(program)
    assert verdict is not None and describe(verdict.finding).startswith("Good")
    return verdict.share


def test_no_format_brings_work_above_its_roof() -> None:
    """A layer of 60 ms at 80 % of the roof takes 48 ms at least, whatever a try says."""
    own = [layer_with("body", "Conv2d", 20, 40, bound="compute"), LAYERS[1]]
    assert own[0].cost.roof.value == 0.8
    tried = {"phase": "forward", "layer": "body", "line": "net.py:5", "ns": int(3 * MS), "times": 3.0}
    assert memory_format.rule(judged(layers=own, formats=[tried])) is None, "12 % of the step"


def test_a_layout_that_was_left_as_it_is_comes_behind_what_the_program_does() -> None:
    """And a good program with it is good; what it would bring is the second sentence."""
    own = [layer_with("body", "Conv2d", 20, 40, bound="compute"), layer_with("head", "Linear", 10, 20, bound="compute")]
    own[0] = dataclasses.replace(own[0], cost=dataclasses.replace(own[0].cost, roof=Value(0.3, "1", "derived")))
    tried = {"phase": "forward", "layer": "body", "line": "net.py:5", "ns": int(3 * MS), "times": 2.0}
    said, _ = verdicts(judged(layers=own, formats=[tried]))
    assert [verdict.kind for verdict in said][:2] == ["good", "memory_format"]
    clones = [group(10 * MS, 4, layer="head", family="copy", bytes=1e8), group(10 * MS, layer="head")]
    said, _ = verdicts(judged(layers=own, formats=[tried], groups=clones))
    assert [verdict.kind for verdict in said][:2] == ["copies", "memory_format"]
    assert said[0].share < said[1].share


def test_a_kernel_that_is_not_made_for_a_layout_is_a_cause() -> None:
    """Eight times as long: it uses no vector instructions."""
    own = [
        layer_with("body", "MaxPool2d", 20, 40, bound="compute"),
        layer_with("head", "Conv2d", 10, 20, bound="compute"),
    ]
    own[0] = dataclasses.replace(own[0], cost=dataclasses.replace(own[0].cost, roof=Value(0.1, "1", "derived")))
    tried = {"phase": "forward", "layer": "body", "line": "net.py:5", "ns": int(3 * MS), "times": 8.0}
    said, _ = verdicts(judged(layers=own, formats=[tried]))
    assert said[0].kind == "memory_format" and "good" not in [verdict.kind for verdict in said]


def test_a_function_that_was_tried_counts_with_its_own_time() -> None:
    """Half of what a block computes, which takes 60 ms: 27 of its 30 ms go with a pooling ten times as fast."""
    block = [dataclasses.replace(LAYERS[0], name="Block"), dataclasses.replace(LAYERS[1], name="Conv2d")]
    groups = [group(3 * MS, layer="body", line="net.py:5"), group(3 * MS, layer="body", line="net.py:9")]
    tried = {"phase": "forward", "layer": "body", "line": "net.py:5", "ns": int(3 * MS), "times": 10.0}
    verdict = memory_format.rule(judged(layers=block, groups=groups, formats=[tried]))
    assert share_of(verdict) == pytest.approx(0.27)


def test_copies_that_only_a_backward_makes_are_the_framework_s() -> None:
    """Autograd brings gradients into the order of their weights; a clone's backward copies as much as the clone."""
    back = {**group(30 * MS, 4, layer="body", family="copy", bytes=1e8), "phase": "backward"}
    assert copies.rule(judged(groups=[back, group(30 * MS, layer="body")])) is None
    clone = group(10 * MS, 1, layer="body", family="copy", bytes=1e8)
    assert share_of(copies.rule(judged(groups=[back, clone, group(20 * MS, layer="body")]))) == pytest.approx(0.40)


def test_a_large_linear_layer_behind_convolutions_dominates() -> None:
    """Eight thousand to fifteen hundred is no wide matrix; behind three convolutions it is a flattened image."""
    sizes = [{"layer": "head", "weights": 12_000_000, "inputs": 8_000, "outputs": 1_500}]
    sizes += [{"layer": f"body.{row}", "weights": 20_000, "inputs": 48, "outputs": 48, "kernel": 3} for row in range(3)]
    layers = [layer_with("body", "Sequential", 10, 20), layer_with("head", "Linear", 20, 40)]
    assert dominating_layer.rule(judged(layers=layers, sizes=sizes)) is not None
    plain = [{**size, "kernel": 0} for size in sizes]
    assert dominating_layer.rule(judged(layers=layers, sizes=plain)) is None


def test_gathered_batches_are_no_loop() -> None:
    """Sixty operations in a line and thirty backwards a step: two a batch."""
    lines = [group(1 * MS, 60, layer="body", line=f"net.py:{number}") for number in range(40)]
    own = [dataclasses.replace(row, name="Reader") for row in LAYERS]
    seen = judged(layers=own, groups=lines, batch=2)
    assert tiny_operations.rule(seen) is not None
    gathered = dataclasses.replace(seen, parts=(dataclasses.replace(seen.parts[0], backwards=30),))
    assert micro_batch.rule(gathered) is not None and tiny_operations.rule(gathered) is None


def test_steps_of_an_unknown_batch_are_no_micro_batch() -> None:
    """A training by functions: nobody sees how many samples it takes."""
    lines = [group(1 * MS, 40, layer="body", line=f"net.py:{number}") for number in range(50)]
    assert micro_batch.rule(judged(groups=lines)) is None
    assert tiny_operations.rule(judged(groups=lines)) is not None


def test_a_layer_that_two_lines_call_is_counted_once() -> None:
    """With channels last its 60 ms would be 14 less: 14 % of the step. Counted twice it would be 28."""
    own = [dataclasses.replace(row, name="Conv2d") for row in LAYERS]
    tried = [
        {"phase": "forward", "layer": "body", "line": f"net.py:{line}", "ns": int(3 * MS), "times": 1.3}
        for line in (5, 6)
    ]
    assert memory_format.rule(judged(layers=own, formats=tried)) is None


def test_an_update_of_few_large_operations_has_no_loop_to_leave_out() -> None:
    phases = [phase("forward", cost(30)), phase("backward", cost(30)), phase("optimizer", cost(40))]
    update = {"phase": "optimizer", "operations": 12, "ns": int(50 * MS), "flops": 1e9, "line": "rule.py:28"}
    assert optimizer.rule(judged(phases, groups=[update])) is None


def test_an_update_that_the_program_computes_itself() -> None:
    """Of 40 ms in 9,000 operations 50 MB need 5 at 10 GB/s."""
    phases = [phase("forward", cost(30)), phase("backward", cost(30)), phase("optimizer", cost(40))]
    update = {"phase": "optimizer", "operations": 9_000, "ns": int(50 * MS), "bytes": 5e7, "line": "rule.py:28"}
    verdict = optimizer.rule(judged(phases, groups=[update]))
    assert share_of(verdict) == pytest.approx(0.35)
    assert verdict is not None and "rule.py:28" in describe(verdict.finding)


def test_results_too_large_to_be_kept_are_allocated_anew() -> None:
    """90 MB are 22,000 pages of 4 KiB: of 22,500 page faults at 2 µs almost all. Smaller results are kept."""
    facts = {"fault_ns": 2_000.0, "step_faults": 22_500.0}
    large = {
        "phase": "",
        "operations": 1,
        "ns": int(20 * MS),
        "mapped": 9e7,
        "line": "search.py:16",
        "family": "product",
    }
    phases = [phase("forward", cost(30)), phase("backward", cost(30)), phase("other", cost(40))]
    verdict = allocation.rule(judged(phases, facts=facts, groups=[large]))
    assert share_of(verdict) == pytest.approx(0.45)
    assert verdict is not None and "search.py:16" in describe(verdict.finding)
    assert allocation.rule(judged(phases, facts=facts, groups=[{**large, "mapped": 0}])) is None
    few = {**large, "mapped": 4e7}
    assert allocation.rule(judged(phases, facts=facts, groups=[few])) is None, "less than half of the faults"
    both = dataclasses.replace(
        judged(phases, facts=facts, groups=[large]), target=ProgramTarget(spec="", device="cpu", threads=2)
    )
    assert share_of(allocation.rule(both)) == pytest.approx(0.225), "two threads have them beside each other"
