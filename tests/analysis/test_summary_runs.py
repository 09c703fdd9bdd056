"""Summaries of whole runs: captions, parts, warnings, runs that did not come to their end."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import CEILINGS, MACHINE, MS, RunBuilder, count_operations, stepped, trained, training_step
from sonda.analysis import wording
from sonda.analysis.doubts import (
    EndedEarly,
    FewSteps,
    NoRoof,
    NoStepSeen,
    ObservingCost,
    ObservingCostUnknown,
    OnlyWarmup,
    ProbeSilent,
    RunFailed,
    StolenTime,
    why_silent,
)
from sonda.analysis.findings import Remark
from sonda.analysis.rules.limit_findings import NothingToJudge
from sonda.analysis.run_summary import summarise
from sonda.analysis.summary import Value
from sonda.record.run import ProbeState


def rows(summary):
    return {row.name: row for row in summary.parts[0].phases}


def layers(summary):
    return {row.path: row for row in summary.parts[0].layers}


def test_title_and_subtitle_read_like_a_caption():
    machine = {"processor": "AMD EPYC", "effective_cores": 2}
    workload = {"name": "resnet34", "train": True, "batch": 16}
    builder = RunBuilder()
    part = builder.part("train")
    for duration in [900, 800, 700] + [100, 102, 98] * 7:
        builder.step(part, duration)
    summary = summarise(builder.run(workload=workload, machine=machine, target={"threads": 2}))
    assert summary.title == "ResNet-34, training, batch 16"
    assert summary.subtitle.startswith("AMD EPYC, 2 cores · 21 steps after 3 warm-up, ±")


@pytest.mark.parametrize(
    ("workload", "title"),
    [
        ({"command": ["/opt/python/bin/python", "train.py", "--epochs", "1"]}, "python train.py --epochs 1, train"),
        ({"command": "python 'my train.py'"}, "python 'my train.py', train"),
        ({"name": "net.py:build", "train": False, "precision": "bf16"}, "net.py:build, inference, bfloat16"),
        ({}, "run"),
    ],
)
def test_titles_of_other_workloads(workload, title):
    assert summarise(stepped([10] * 8, workload=workload)).title == title


def test_an_incomplete_run_is_shown_with_its_sentence():
    summary = summarise(trained(status="incomplete", exit_code=1))
    assert summary.parts[0].step.value == 120 * MS
    assert summary.warnings[0] == EndedEarly(1)


def test_a_failed_run_says_so():
    assert isinstance(summarise(trained(status="failed")).warnings[0], RunFailed)


def test_a_program_that_never_trained():
    summary = summarise(RunBuilder().run(workload={"command": ["python", "hello.py"]}))
    assert summary.parts == ()
    assert summary.subtitle.endswith("no steps")
    assert NoStepSeen(of_block=False) in summary.warnings
    assert [verdict.finding for verdict in summary.verdicts] == [NothingToJudge("no step was seen")]


def test_a_run_without_a_single_span():
    run = RunBuilder().run()
    empty = RunBuilder()
    empty.rows = []
    run.spans = empty.spans()
    assert summarise(run).parts == ()


def test_a_run_with_only_a_counted_step_has_counts_but_no_times():
    summary = summarise(trained([]))
    part = summary.parts[0]
    assert (part.steps, part.step.value, part.durations) == (0, None, ())
    assert "counting disturbs" in part.step.reason
    found = rows(summary)
    assert found["forward"].cost.flops.value == 2.01e9
    assert found["forward"].cost.time.value is None
    assert math.isnan(found["forward"].cost.share)
    assert layers(summary)["conv"].cost.flops.value == 5e9
    assert layers(summary)["conv"].forward.value is None
    assert summary.verdicts[0].finding == NothingToJudge(part.step.reason)


@pytest.mark.parametrize("pass_", ["count", "kernels"])
def test_a_run_that_ended_in_a_step_of_its_own_before_any_phase_is_shown(pass_: str):
    builder = RunBuilder()
    builder.step(builder.part("train"), 10, {}, pass_=pass_)
    part = summarise(builder.run()).parts[0]
    assert part.phases == () and part.step.value is None


def test_only_warmup_is_shown_and_said():
    builder = RunBuilder()
    part = builder.part("train")
    for _ in range(3):
        builder.step(part, 100, pass_="warmup")
    summary = summarise(builder.run())
    assert summary.parts[0].step.value == 100 * MS
    assert OnlyWarmup("train") in summary.warnings


def test_a_single_step_has_no_interval_and_a_warning():
    summary = summarise(stepped([100]))
    assert (summary.parts[0].step.value, summary.parts[0].step.low) == (100 * MS, None)
    assert math.isnan(summary.parts[0].noise)
    assert [warning.steps for warning in summary.warnings if isinstance(warning, FewSteps)] == [1]


def test_train_comes_first_then_what_took_longest():
    builder = RunBuilder()
    for name, duration in (("test", 10), ("validate", 300), ("train", 100)):
        part = builder.part(name)
        for _ in range(6):
            builder.step(part, duration)
    assert [part.name for part in summarise(builder.run()).parts] == ["train", "validate", "test"]


def test_parts_of_several_epochs_are_one_part():
    builder = RunBuilder()
    for _ in range(3):
        part = builder.part("train")
        epoch = builder.add("epoch", "epoch", part, builder.clock, 0)
        builder.step(epoch, 100)
        builder.step(builder.part("validate"), 30)
    assert [(part.name, len(part.durations)) for part in summarise(builder.run()).parts] == [
        ("train", 3),
        ("validate", 3),
    ]


def test_steps_outside_any_part_belong_to_what_the_workload_does():
    builder = RunBuilder()
    for _ in range(5):
        builder.step(builder.root, 10)
    assert summarise(builder.run(workload={"train": False})).parts[0].name == "test"


def test_probes_that_did_not_work_and_the_cost_of_observing_are_noted():
    probes = [ProbeState("energy", "missing", "no RAPL in this virtual machine"), ProbeState("clock", "ok")]
    notes = summarise(trained(probes=probes, overhead={"step_share": 0.004})).notes
    assert [note for note in notes if isinstance(note, ProbeSilent)] == [
        ProbeSilent("energy", "no RAPL in this virtual machine", "")
    ]
    assert why_silent(notes, "energy") == "no RAPL in this virtual machine" and why_silent(notes, "clock") == ""
    assert ObservingCost(Value(0.004, "1", "derived")) in notes


@pytest.mark.parametrize("share", [1.0, 2.25, 5.31])
def test_a_cost_that_cannot_be_is_not_told_as_a_number(share):
    notes = summarise(trained(overhead={"step_share": share})).notes
    assert ObservingCostUnknown() in notes and not any(isinstance(note, ObservingCost) for note in notes)


def test_every_number_is_a_plain_one():
    def walk(value):
        if dataclasses.is_dataclass(value):
            for field in dataclasses.fields(value):
                walk(getattr(value, field.name))
        elif isinstance(value, dict):
            for inner in value.values():
                walk(inner)
        elif isinstance(value, tuple | list):
            for inner in value:
                walk(inner)
        else:
            assert not isinstance(value, np.generic | np.ndarray), value

    walk(summarise(trained([1.0, 1.1, 0.9, 1.0])))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=12),
    st.sampled_from([1, 3]),
)
def test_phases_and_other_add_up_to_the_step(lengths, scale):
    builder = RunBuilder()
    part = builder.part("train")
    for forward, backward, rest in lengths:
        total = (forward + backward + rest + 1) * scale
        builder.step(part, total, {"forward": forward * scale, "backward": backward * scale})
    found = summarise(builder.run()).parts[0]
    # In every step exactly.
    for i, duration in enumerate(found.durations):
        assert sum(steps[i] for steps in found.phase_steps.values()) == duration
    # The table has the median of each, `other` like the phases.
    for row in found.phases:
        assert row.cost.time.value == pytest.approx(np.median(found.phase_steps[row.name][found.warmup :]))


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 40))
def test_a_machine_of_another_speed_changes_no_share_and_no_flops(tenths):
    factor = tenths / 10
    plain, scaled = summarise(trained()), summarise(trained([factor] * 8))
    for row, other in zip(plain.parts[0].phases, scaled.parts[0].phases, strict=True):
        assert other.cost.share == pytest.approx(row.cost.share, rel=1e-6)
        assert other.cost.flops.value == row.cost.flops.value
        if row.cost.roof.value is None:
            continue
        if row.cost.roof.value <= factor:
            assert other.cost.roof.value == pytest.approx(row.cost.roof.value / factor, rel=1e-6)
        else:  # nothing is faster than the ceilings
            assert other.cost.roof.value in (None, 1.0)


def test_an_operation_inside_another_is_counted_once():
    builder = RunBuilder()
    part = builder.part("train")
    rows_of_step = training_step(builder, part, 10.0, "count")
    count_operations(builder, rows_of_step)
    outer = builder.op(rows_of_step["conv"], "composite", 1e6, 1e3)
    builder.op(outer, "inner", 1e6, 1e3)
    for _ in range(4):
        training_step(builder, part)
    assert layers(summarise(builder.run()))["conv"].cost.flops.value == 5e9 + 1e6


def test_against_ceilings_taken_while_others_ran_nothing_is_held():
    entry = {**CEILINGS["threads"]["1"], "disturbed": ["other programs used 1.0 of 2 CPUs"]}
    machine = {**MACHINE, "ceilings": {**CEILINGS, "threads": {"1": entry}}}
    summary = summarise(trained(machine=machine))
    roofs = [row.cost.roof for row in summary.parts[0].phases if row.cost.flops.value]
    assert roofs and all(roof.value is None and "other programs ran while" in roof.reason for roof in roofs)
    assert any(isinstance(note, NoRoof) for note in summary.notes)
    assert all(row.cost.roof.value for row in summarise(trained()).parts[0].phases if row.cost.flops.value)


def test_what_others_did_to_the_run_is_a_warning():
    sentence = "other programs used 1.0 of 2 CPUs while this one wanted 2"
    assert Remark(sentence) in summarise(trained(disturbed=[sentence])).warnings


def test_time_that_a_hypervisor_gave_to_others_is_told_and_judges_nothing():
    machine = {"conditions": {"steal": 0.05, "signs": []}}
    told = summarise(stepped([1.0, 2.0, 1.5], machine=machine))
    assert StolenTime(Value(0.05, "1", "measured")) in told.notes
    assert not any(isinstance(warning, StolenTime) for warning in told.warnings)
    for steal in ({}, {"steal": 0.0004}):
        quiet = summarise(stepped([1.0, 2.0, 1.5], machine={"conditions": steal}))
        assert not any(isinstance(note, StolenTime) for note in quiet.notes)


def test_prefill_and_decode_have_rates_of_their_own():
    builder = RunBuilder()
    part = builder.part("test")
    for _ in range(4):
        builder.step(part, 100, {"prefill": 20, "decode": 80})
    tokens = {"prefill": 512, "decode": 64}
    found = summarise(builder.run(workload={"name": "transformer", "phase_tokens": tokens})).parts[0]
    # 512 tokens in 20 ms and 64 in 80 ms
    assert {name: value.value for name, value in found.phase_tokens.items()} == {"prefill": 25_600, "decode": 800}


def test_sentences_round_to_the_next_unit_and_count_in_the_plural():
    assert [wording.duration(ns) for ns in (999.4e3, 999.6e3, 0.9996e9)] == ["999 µs", "1.0 ms", "1.0 s"]
    assert [wording.amount(size, "B") for size in (999.4e3, 999.6e3)] == ["999 kB", "1.0 MB"]
    assert [wording.plural(count, "step") for count in (0, 0.6, 1, 1.4, 1204)] == [
        "0 steps", "1 step", "1 step", "1 step", "1,204 steps"
    ]  # fmt: skip
