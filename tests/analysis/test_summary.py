"""Summaries of constructed runs; every number is written down in the builder or computed by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from builders import MS, RunBuilder, stepped, trained
from sonda.analysis.doubts import AboveRoof, Covered, NoRoof, OneShapeCounted, OtherLayers, ShapesAveraged
from sonda.analysis.run_summary import summarise
from sonda.analysis.summary import Value


def rows(summary):
    return {row.name: row for row in summary.parts[0].phases}


def layers(summary):
    return {row.path: row for row in summary.parts[0].layers}


def test_the_step_is_the_median_of_the_timed_steps_without_the_counted_one():
    part = summarise(trained([1.0, 1.1, 0.9, 1.0, 1.0])).parts[0]
    assert (part.name, part.step.value, part.step.unit, part.steps, part.warmup) == ("train", 120 * MS, "ns", 5, 0)
    assert part.durations == (120 * MS, 132 * MS, 108 * MS, 120 * MS, 120 * MS)
    assert part.total.value == 600 * MS


def test_phases_are_exclusive_and_other_is_what_is_left():
    found = rows(summarise(trained()))
    times = {name: row.cost.time.value / MS for name, row in found.items()}
    assert times == {"data": 5, "forward": 40, "backward": 60, "optimizer": 10, "other": 5}
    assert found["backward"].cost.share == 0.5


def test_counts_of_phases_are_sums_over_their_operations():
    forward = rows(summarise(trained()))["forward"].cost
    assert (forward.flops.value, forward.flops.source) == (2.01e9, "nominal")
    assert forward.bytes.value == 1.8e8
    assert forward.operations.value == 2
    assert forward.achieved.value == pytest.approx(2.01e9 / 0.040)
    assert forward.bandwidth.value == pytest.approx(1.8e8 / 0.040)
    # Least times: convolution 20 ms, normalisation 8 ms.
    assert forward.roof.value == pytest.approx(28 / 40)
    assert forward.bound == "compute"
    assert forward.limits == pytest.approx({"compute": 20 * MS, "memory": 8 * MS, "overhead": 4000})


def test_phases_without_operations_have_a_reason_and_no_zero():
    data = rows(summarise(trained()))["data"].cost
    assert (data.flops.value, data.roof.value, data.bound) == (None, None, "")
    assert data.flops.reason == "no operation was counted here"


def test_operations_that_fit_in_the_cache_are_told_apart():
    found = rows(summarise(trained()))
    # 8 MB at 40 GB/s: 0.2 ms of the 10 ms.
    assert found["optimizer"].cost.roof.value == pytest.approx(0.02)
    assert found["optimizer"].cost.cached == 1.0
    assert found["forward"].cost.cached == 0.0


def test_layers_have_forward_backward_and_own_time():
    found = layers(summarise(trained()))
    assert list(found) == ["", "conv", "norm"]
    times = {path: (r.forward.value / MS, r.backward.value / MS, r.own.value / MS) for path, r in found.items()}
    # The model: 38 forward with its children, 2 + 20 + 35 backward; of its own 3 forward and 2 backward.
    assert times == {"": (38, 57, 5), "conv": (25, 35, 60), "norm": (10, 20, 30)}
    assert [(r.depth, r.leaf, r.calls, r.name) for r in found.values()] == [
        (0, False, 1, "Net"), (1, True, 1, "Conv2d"), (1, True, 1, "BatchNorm2d")]  # fmt: skip


def test_own_times_add_up_to_the_model():
    found = layers(summarise(trained()))
    model = found[""]
    assert sum(row.own.value for row in found.values()) == model.forward.value + model.backward.value


def test_layers_have_counts_with_and_without_their_children():
    found = layers(summarise(trained()))
    assert found["conv"].cost.flops.value == 5e9
    assert found["conv"].cost.roof.value == pytest.approx(50 / 60)
    assert found["norm"].cost.roof.value == pytest.approx(23 / 30)
    assert (found["conv"].cost.bound, found["norm"].cost.bound) == ("compute", "memory")
    assert found[""].cost.flops.value == 5.02e9
    assert found[""].cost.share == pytest.approx(95 / 120)
    assert found[""].own_cost.flops.value is None
    assert found[""].own_cost.time.value == 5 * MS


def test_a_module_called_twice_counts_twice():
    builder = RunBuilder()
    part = builder.part("test")
    for _ in range(4):
        step = builder.step(part, 10, {"forward": 10})
        model = builder.layer(step["forward"], "", "Net", 9)
        builder.layer(model, "block", "Linear", 2, call=0)
        builder.layer(model, "block", "Linear", 3, call=1)
    row = layers(summarise(builder.run()))["block"]
    assert (row.calls, row.forward.value) == (2, 5 * MS)
    assert row.backward.value is None


def test_a_shared_module_counts_where_it_was_called_and_under_its_own_path():
    builder = RunBuilder()
    part = builder.part("test")
    for _ in range(4):
        step = builder.step(part, 10, {"forward": 10})
        model = builder.layer(step["forward"], "", "Net", 10)
        outer = builder.layer(model, "b", "Block", 6)
        builder.layer(outer, "a.x", "Linear", 4)
    found = layers(summarise(builder.run()))
    assert (found["b"].forward.value, found["b"].own.value) == (6 * MS, 2 * MS)
    assert found["a.x"].forward.value == 4 * MS


def test_a_module_that_calls_itself_is_not_counted_twice():
    builder = RunBuilder()
    part = builder.part("test")
    for _ in range(4):
        step = builder.step(part, 10, {"forward": 10})
        outer = builder.layer(step["forward"], "", "Recursive", 8)
        builder.layer(outer, "", "Recursive", 5, call=1)
    row = layers(summarise(builder.run()))[""]
    assert (row.forward.value, row.own.value) == (8 * MS, 8 * MS)


def test_a_forward_that_backward_recomputes_is_backward_time():
    builder = RunBuilder()
    part = builder.part("train")
    for _ in range(4):
        step = builder.step(part, 30, {"forward": 10, "backward": 20})
        builder.layer(step["forward"], "block", "Block", 8)
        again = builder.layer(step["backward"], "block", "Block", 9, "forward")
        builder.layer(again, "block.linear", "Linear", 6, "forward")
        builder.layer(step["backward"], "block.linear", "Linear", 7, "backward")
    found = layers(summarise(builder.run()))
    assert (found["block"].forward.value, found["block"].backward.value) == (8 * MS, 16 * MS)
    assert found["block.linear"].backward.value == 13 * MS


def test_several_models_stand_side_by_side():
    builder = RunBuilder()
    part = builder.part("train")
    for _ in range(4):
        step = builder.step(part, 10, {"forward": 10})
        builder.layer(builder.layer(step["forward"], "Generator", "Generator", 6), "Generator.up", "Linear", 5)
        builder.layer(step["forward"], "Critic", "Critic", 4)
    found = layers(summarise(builder.run()))
    assert {path: row.depth for path, row in found.items()} == {"Generator": 0, "Generator.up": 1, "Critic": 0}


def test_memory_and_counters_come_from_their_spans():
    builder = RunBuilder()
    part = builder.part("train")
    counted = builder.step(part, 100, {"forward": 50}, pass_="count")
    builder.rows[counted["forward"]]["metrics"] = {"peak_memory:counted": 1.9e9}
    builder.layer(counted["forward"], "", "Net", 40, metrics={"activations:counted": 7e6})
    for faults in (100, 120, 140, 160):
        step = builder.step(part, 10, {"forward": 8})
        builder.layer(step["forward"], "", "Net", 7)
        builder.rows[step["forward"]]["metrics"] = {
            "page_faults:counted": faults, "resident_memory:measured": 1e9 + faults}  # fmt: skip
    summary = summarise(builder.run())
    forward = rows(summary)["forward"]
    assert (forward.peak_memory.value, forward.peak_memory.source) == (1.9e9, "counted")
    assert forward.counters["page_faults:counted"].value == 130
    assert forward.counters["resident_memory:measured"].value == 1e9 + 130
    assert forward.counters["resident_memory:measured"].unit == "B"
    assert layers(summary)[""].activations.value == 7e6
    assert rows(summary)["other"].peak_memory.value is None


def test_a_phase_whose_counters_were_read_now_and_then_only_has_a_reason_and_no_figure():
    """Only what is long is read: the few readings of a short phase are those of its longest occurrences."""
    builder = RunBuilder()
    part = builder.part("train")
    for index in range(20):
        step = builder.step(part, 10, {"forward": 9, "loss": 0.5 if index in (7, 8) else 0.1})
        builder.rows[step["forward"]]["metrics"] = {"task_clock:counted": 9 * MS}
        if index in (7, 8):
            builder.rows[step["loss"]]["metrics"] = {"task_clock:counted": 0.45 * MS}
    summary = summarise(builder.run())
    loss = rows(summary)["loss"].counters["task_clock:counted"]
    assert loss.value is None
    assert loss.reason == "read in 2 of 20 steps: the phase is too short to read counters each time"
    assert rows(summary)["forward"].counters["task_clock:counted"].value == 9 * MS
    assert summary.parts[0].counters["task_clock:counted"].value == 9 * MS


def test_a_phase_that_is_not_in_every_step_needs_readings_in_most_of_its_own():
    builder = RunBuilder()
    part = builder.part("train")
    for index in range(16):
        phases = {"forward": 6} | ({"optimizer": 3} if index % 4 == 3 else {})
        step = builder.step(part, 10, phases)
        if index % 4 == 3:
            builder.rows[step["optimizer"]]["metrics"] = {"page_faults:counted": 5}
    assert rows(summarise(builder.run()))["optimizer"].counters["page_faults:counted"].value == 5


def test_counters_of_the_step_are_there_where_phases_change_places():
    """A phase's median is 1 of 10 ms: together 3, though the phases cover every step."""
    builder = RunBuilder()
    part = builder.part("train")
    names = ("forward", "backward", "optimizer")
    for index in range(21):
        lengths = {name: 8.0 if at == index % 3 else 1.0 for at, name in enumerate(names)}
        step = builder.step(part, 10, lengths)
        for name in names:
            builder.rows[step[name]]["metrics"] = {
                "task_clock:counted": lengths[name] * MS, "resident_memory:measured": 100 * lengths[name]}  # fmt: skip
    found = summarise(builder.run()).parts[0]
    assert found.counters["task_clock:counted"].value == 10 * MS
    assert found.counters["resident_memory:measured"].value == 800


def test_counters_that_cover_few_steps_do_not_stand_for_the_step():
    builder = RunBuilder()
    part = builder.part("train")
    for index in range(20):
        step = builder.step(part, 10, {"forward": 5, "backward": 5})
        builder.rows[step["forward"]]["metrics"] = {"page_faults:counted": 1}
        if index < 8:
            builder.rows[step["backward"]]["metrics"] = {"page_faults:counted": 1}
    assert "page_faults:counted" not in summarise(builder.run()).parts[0].counters


def test_energy_on_the_longest_steps_does_not_stand_for_all():
    builder = RunBuilder()
    part = builder.part("train")
    for index in range(20):
        long = index == 0
        step = builder.step(part, 100 if long else 10, dict.fromkeys(("forward", "backward"), 50 if long else 5))
        for phase in ("forward", "backward"):
            if long:
                builder.rows[step[phase]]["metrics"] = {"energy:measured": 5.0, "energy_low:measured": 4.0}
    found = summarise(builder.run()).parts[0]
    assert not {"energy:measured", "energy_low:measured"} & {*found.counters}
    assert not any("energy:measured" in row.counters for row in found.phases)


def test_planned_and_found_warmup_are_set_apart_together():
    builder = RunBuilder()
    part = builder.part("train")
    builder.step(part, 500, pass_="warmup")
    for duration in (300, 200, 100, 100, 100, 100, 100, 100):
        builder.step(part, duration)
    found = summarise(builder.run()).parts[0]
    assert (found.warmup, found.steps, found.step.value) == (3, 6, 100 * MS)
    assert len(found.durations) == 9


def test_samples_and_tokens_per_second():
    part = summarise(stepped([100] * 8, workload={"samples": 16, "tokens": 0})).parts[0]
    assert (part.samples_per_second.value, part.samples_per_second.unit) == (pytest.approx(160), "samples/s")
    assert part.tokens_per_second.value is None
    assert part.tokens_per_second.reason


def test_samples_counted_on_steps_come_before_the_workloads_own():
    builder = RunBuilder()
    part = builder.part("train")
    for _ in range(5):
        builder.step(part, 100, metrics={"samples:counted": 4})
    assert summarise(builder.run()).parts[0].samples_per_second.value == pytest.approx(40)


def test_of_several_counted_shapes_flops_are_means_over_the_steps_and_say_so():
    builder = RunBuilder()
    part = builder.part("train")
    for shape, flops in ((1, 1e9), (2, 4e9)):
        counted = builder.step(part, 900, {"forward": 900}, pass_="count", metrics={"shape:counted": shape})
        builder.op(counted["forward"], "mm", flops, 1e6)
    for shape, duration in ((2, 50), (2, 50), (1, 10), (2, 50), (1, 10), (2, 50), (1, 10), (2, 50)):
        builder.step(part, duration, {"forward": duration}, metrics={"shape:counted": shape})
    summary = summarise(builder.run())
    forward = rows(summary)["forward"].cost
    assert forward.flops.value == pytest.approx((5 * 4e9 + 3 * 1e9) / 8)
    assert forward.achieved.value == pytest.approx((5 * 4e9 + 3 * 1e9) / (5 * 0.050 + 3 * 0.010))
    assert ShapesAveraged("train", 2, 2, foretold=False, covered=Covered(8, 8)) in summary.notes


@pytest.mark.parametrize("period", [1, 4, 50])
def test_steps_that_call_other_layers_than_the_counted_one_are_told(period):
    """Of one input shape, where data decide which layers run; of less than a twentieth of the steps nobody speaks."""
    builder = RunBuilder()
    part = builder.part("train")
    counted = builder.step(part, 900, {"forward": 900}, pass_="count", metrics={"shape:counted": 1})
    builder.op(builder.layer(counted["forward"], "a", "Linear", 400), "mm", 4e9, 1e6)
    for at in range(100):
        phases = builder.step(part, 50, {"forward": 50}, metrics={"shape:counted": 1})
        builder.layer(phases["forward"], "a", "Linear", 20)
        if period > 1 and at % period == 0:
            builder.layer(phases["forward"], "b", "Linear", 20)
    notes = [note for note in summarise(builder.run()).notes if isinstance(note, OtherLayers)]
    assert notes == ([OtherLayers("train", Value(0.25, "1", "derived"))] if period == 4 else [])


def test_layers_of_steps_of_their_own_are_no_other_layers():
    """A profile of a compiled function may tell its model as a layer too, which is no other layer."""
    builder = RunBuilder()
    part = builder.part("train")
    counted = builder.step(part, 900, {"fused": 900}, pass_="count", metrics={"shape:counted": 1})
    builder.op(builder.layer(counted["fused"], "a", "Dense", 400), "mm", 4e9, 1e6)
    for pass_ in ("timed", "pieces"):
        for _ in range(5):
            phases = builder.step(part, 50, {"fused": 50}, pass_=pass_, metrics={"shape:counted": 1})
            if pass_ == "pieces":
                builder.layer(builder.layer(phases["fused"], "", "Model", 30), "a", "Dense", 20)
    assert not any(isinstance(note, OtherLayers) for note in summarise(builder.run()).notes)


def test_one_counted_shape_stands_for_the_steps_that_have_it_and_says_so():
    builder = RunBuilder()
    part = builder.part("train")
    counted = builder.step(part, 900, {"forward": 900}, pass_="count", metrics={"shape:counted": 2})
    builder.op(counted["forward"], "mm", 4e9, 1e6)
    for shape, duration in ((2, 50), (2, 50), (1, 10), (2, 50), (1, 10), (2, 50), (1, 10), (2, 50)):
        builder.step(part, duration, {"forward": duration}, metrics={"shape:counted": shape})
    summary = summarise(builder.run())
    forward = rows(summary)["forward"].cost
    assert forward.flops.value == 4e9
    assert forward.achieved.value == pytest.approx(4e9 / 0.050)
    assert forward.roof.value == pytest.approx(40 / 50)
    assert OneShapeCounted("train", Covered(5, 8)) in summary.notes
    uncounted = RunBuilder()
    part = uncounted.part("validate")
    for shape in (1, 1, 1, 2):
        uncounted.step(part, 10, {"forward": 10}, metrics={"shape:counted": shape})
    notes = summarise(uncounted.run()).notes
    assert not any(isinstance(note, OneShapeCounted) for note in notes), "nothing was counted to speak of"


def lengths(count, measured, flops, sizes=lambda length: {"input_size_1:counted": length}):
    """A run whose steps have texts of these lengths; the counted ones do `flops(length)` and move a byte for each."""
    builder = RunBuilder()
    part = builder.part("train")
    for length in count:
        metrics = {"shape:counted": length, **sizes(length)}
        step = builder.step(part, 900, {"forward": 900, "optimizer": 1}, pass_="count", metrics=metrics)
        builder.op(step["forward"], "mm", flops(length), flops(length))
        # An optimizer makes its state in its first step.
        builder.op(step["optimizer"], "add_", 100, 1000 if length == count[0] else 400)
    for length in measured:
        builder.step(part, 50, {"forward": 40, "optimizer": 1}, metrics={"shape:counted": length, **sizes(length)})
    return summarise(builder.run())


def test_flops_of_uncounted_lengths_follow_from_the_counted_ones():
    def attention(length):
        return 7e4 * length**2 + 3e6 * length + 5e5

    summary = lengths([20, 200, 90, 60, 150], range(25, 190, 3), attention)
    costs = rows(summary)
    assert costs["forward"].cost.flops.value == pytest.approx(np.mean([attention(n) for n in range(25, 190, 3)]))
    assert costs["optimizer"].cost.bytes.value == 400
    (note,) = (note for note in summary.notes if isinstance(note, ShapesAveraged))
    assert (note.counted, note.foretold, note.covered) == (5, True, Covered(55, 55))


def test_a_batch_and_a_length_that_both_differ_are_foretold_together():
    sizes = {number: (1 + number % 5, 10 + 37 * number % 90) for number in range(40)}

    def two(number):
        batch, length = sizes[number]
        return 1e6 * batch * length + 2e4 * batch * length**2

    def told(number):
        return {"input_size_1:counted": sizes[number][0], "input_size_2:counted": sizes[number][1]}

    summary = lengths(list(range(10)), range(40), two, told)
    assert rows(summary)["forward"].cost.flops.value == pytest.approx(np.mean([two(n) for n in range(40)]))


def test_counts_that_no_polynomial_foretells_stand_for_their_own_shapes_only():
    def by_data(length):
        return 1e9 * (1 + length * 7 % 5)

    summary = lengths([20, 200, 90, 61, 153], range(20, 120), by_data)
    own = [by_data(length) for length in (20, 90, 61)]
    assert rows(summary)["forward"].cost.flops.value == pytest.approx(np.mean(own))
    (note,) = (note for note in summary.notes if isinstance(note, ShapesAveraged))
    assert (note.foretold, note.covered) == (False, Covered(3, 100))


def test_a_shape_that_was_never_counted_has_a_reason():
    builder = RunBuilder()
    part = builder.part("train")
    builder.step(part, 900, {"forward": 900}, pass_="count", metrics={"shape:counted": 1})
    for _ in range(4):
        builder.step(part, 50, {"forward": 50}, metrics={"shape:counted": 2})
    cost = rows(summarise(builder.run()))["forward"].cost
    assert cost.flops.reason == "no step with the most frequent input shape was counted"


def test_operations_without_a_formula_make_a_lower_bound():
    builder = RunBuilder()
    part = builder.part("train")
    counted = builder.step(part, 90, {"forward": 90}, pass_="count")
    builder.op(counted["forward"], "mm", 1e9, 1e6)
    builder.op(counted["forward"], "custom", math.nan, math.nan)
    for _ in range(4):
        builder.step(part, 20, {"forward": 20})
    cost = rows(summarise(builder.run()))["forward"].cost
    assert cost.flops.value == 1e9
    assert cost.flops.reason == "a lower bound: no formula for 1 of 2 operations"
    assert cost.roof.value == pytest.approx(0.5)


def test_only_unknown_operations_are_missing_not_zero():
    builder = RunBuilder()
    part = builder.part("train")
    counted = builder.step(part, 90, {"forward": 90}, pass_="count")
    builder.op(counted["forward"], "custom", math.nan, math.nan)
    for _ in range(4):
        builder.step(part, 20, {"forward": 20})
    cost = rows(summarise(builder.run()))["forward"].cost
    assert (cost.flops.value, cost.operations.value) == (None, 1)


def test_operations_cost_more_in_a_training_step():
    training = layers(summarise(trained()))["conv"].cost
    assert training.limits["overhead"] == 2 * 2000
    builder = RunBuilder()
    part = builder.part("test")
    builder.op(builder.step(part, 9, {"forward": 9}, pass_="count")["forward"], "mm", 1e6, 1e3)
    for _ in range(4):
        builder.step(part, 1, {"forward": 1})
    assert rows(summarise(builder.run()))["forward"].cost.limits["overhead"] == 1000


def test_missing_ceilings_leave_the_roof_missing_with_its_reason():
    summary = summarise(trained(machine={"processor": "Invented CPU"}))
    cost = rows(summary)["forward"].cost
    assert cost.flops.value == 2.01e9
    assert (cost.roof.value, cost.bound) == (None, "")
    assert cost.roof.reason == "the machine's ceilings were not measured"
    assert summary.ceilings == {"reason": "the machine's ceilings were not measured"}
    assert NoRoof("the machine's ceilings were not measured") in summary.notes


def test_work_above_the_roof_is_a_warning():
    # A tenth of the time for the same work: 28 ms of least time in 4 ms.
    summary = summarise(trained([0.1] * 8))
    assert any(isinstance(warning, AboveRoof) for warning in summary.warnings)
