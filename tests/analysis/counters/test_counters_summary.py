"""Counters of constructed runs by phase and layer: medians, ratios, rotated groups, what is scaled and refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from builders import MS, RunBuilder, stepped, with_spans
from counted_examples import SKYLAKE, counted_run
from observed import Nursery
from sonda.analysis.counters.findings import (
    GroupsInTurn,
    NotStationary,
    RefusedCounters,
    ScaledCounters,
    UnjudgedStationarity,
)
from sonda.analysis.counters.hardware import groups_of, read_places, summarise_counters
from sonda.analysis.counters.summary import CounterSummary
from sonda.analysis.run_summary import summarise
from sonda.analysis.steps.parts import parts
from sonda.record.conventions.expression import divide


def counted(run) -> CounterSummary:
    found = summarise(run).parts[0].counted
    assert found is not None
    return found


def values(counters) -> dict[str, float]:
    return {name: value.value for name, value in counters.counters.items()}


def test_counts_are_medians_over_the_steps_that_counted_them() -> None:
    # The first group has its turn in steps 0, 4, 8, ...; one of them is disturbed.
    found = counted(counted_run("skylake-sp", SKYLAKE, 20, scale=lambda step, phase: 9.0 if step == 8 else 1.0))
    assert values(found.step)["uops_issued_any"] == pytest.approx(2000)
    assert values(found.phases["forward"])["uops_issued_any"] == pytest.approx(0.6 * 2000)
    assert values(found.phases["backward"])["cycles"] == pytest.approx(0.4 * 1000)
    assert found.step.counters["cycles"].unit == "cycle" and found.step.counters["cycles"].source == "counted"


def test_instructions_per_cycle_and_misses_per_thousand_are_of_the_same_steps() -> None:
    # Steps that count misses do twice the work: the ratio stays, 6 of 1,200.
    found = counted(counted_run("skylake-sp", SKYLAKE, 24, scale=lambda step, phase: 2.0 if step % 4 == 3 else 1.0))
    assert found.step.ipc.value == pytest.approx(1.2)
    assert found.step.per_thousand["longest_lat_cache_miss"].value == pytest.approx(5.0)
    assert values(found.step)["longest_lat_cache_miss"] == pytest.approx(12.0)


def test_layers_count_without_the_layers_inside_forward_and_backward_together() -> None:
    found = counted(counted_run("skylake-sp", SKYLAKE, 16))
    # Forward: the model 300 of which the convolution 150; backward, where nothing nests: 200 and 100.
    assert values(found.layers[""])["cycles"] == pytest.approx(300 - 150 + 200)
    assert values(found.layers["conv"])["cycles"] == pytest.approx(150 + 100)
    assert found.layers["conv"].ipc.value == pytest.approx(1.2)


def test_groups_are_found_in_what_was_counted() -> None:
    run = counted_run("skylake-sp", SKYLAKE, 9)
    part = parts(run)[0]
    turn, groups = groups_of(read_places(part))
    assert turn.tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 0]
    assert set(groups[3]) == {"exe_activity_2_ports_util", "longest_lat_cache_miss", "longest_lat_cache_reference"}


def test_groups_that_agree_are_a_stationary_program() -> None:
    noise = np.random.default_rng(3).normal(1, 0.02, 64)
    found = counted(counted_run("skylake-sp", SKYLAKE, 64, scale=lambda step, phase: float(noise[step])))
    assert found.stationary is True and found.warnings == ()
    assert found.findings == (GroupsInTurn("train", 4, 16, 16),)


def test_groups_that_disagree_are_said_to_be_a_program_that_is_not_stationary() -> None:
    run = counted_run("skylake-sp", SKYLAKE, 32, scale=lambda step, phase: 1.2 if step % 4 == 2 else 1.0)
    summary = summarise(run)
    assert summary.parts[0].counted is not None and summary.parts[0].counted.stationary is False
    assert NotStationary("train", "", "cycles", 1000, 1200) in summary.warnings


def test_a_difference_below_five_percent_is_none() -> None:
    found = counted(counted_run("skylake-sp", SKYLAKE, 32, scale=lambda s, phase: 1.04 if s % 4 == 2 else 1.0))
    assert found.stationary is True


def test_noise_alone_rarely_makes_groups_disagree() -> None:
    # Intervals of 95 % on both sides that do not meet, the extremes of four groups of eight: below one run in twenty,
    # and with that five of thirty are rarer than one in sixty.
    generator = np.random.default_rng(11)
    alarms = 0
    for _ in range(30):
        noise = generator.normal(1, 0.15, 32)
        run = counted_run("skylake-sp", SKYLAKE, 32, scale=lambda s, phase, n=noise: float(n[s]), layers=False)
        part = parts(run)[0]
        found = summarise_counters(part, read_places(part))
        alarms += found is not None and found.stationary is False
    assert alarms < 5


def test_few_steps_a_group_cannot_tell() -> None:
    found = counted(counted_run("skylake-sp", SKYLAKE, 9, scale=lambda step, phase: 3.0 if step % 4 else 1.0))
    assert found.stationary is None and found.warnings == ()
    assert UnjudgedStationarity in map(type, found.findings)


def test_one_group_needs_no_agreement() -> None:
    events = {"cycles": 10, "instructions": 20, "stall_frontend": 1, "stall_backend": 2}
    found = counted(counted_run("neoverse-n1", events, 8))
    assert found.stationary is True and found.findings == ()


def test_scaled_counts_are_marked() -> None:
    found = counted(counted_run("skylake-sp", SKYLAKE, 16, estimated=True, running=0.5))
    assert found.step.counters["cycles"].source == "estimated" and found.step.ipc.source == "estimated"
    assert ScaledCounters("train") in found.findings


def test_counts_that_nobody_scaled_are_left_out_with_the_part_of_the_time() -> None:
    run = counted_run("skylake-sp", SKYLAKE, 16)
    columns = run.spans.metrics
    forward = run.spans.where(kind="phase", name="forward")
    columns["counter_running:counted"][forward] *= 0.62
    found = counted(run)
    assert found.phases["forward"].counters == {} and found.phases["forward"].ipc.value is None
    assert found.phases["backward"].ipc.value == pytest.approx(1.2)
    assert RefusedCounters("train", pytest.approx(0.62)) in found.findings
    # A step of which a part is not known is not known.
    assert found.step.counters == {}


def test_a_step_that_was_read_as_a_whole_is_not_the_sum_of_its_phases() -> None:
    builder = RunBuilder()
    part = builder.part("train")
    for _ in range(6):
        rows = builder.step(part, 10, {"forward": 6}, metrics={"cycles:counted": 1000, "instructions:counted": 900})
        builder.rows[rows["forward"]]["metrics"] = {"cycles:counted": 700, "instructions:counted": 700}
    found = counted(builder.run())
    assert (values(found.step)["cycles"], values(found.phases["forward"])["cycles"]) == (1000, 700)
    assert found.step.ipc.value == 0.9


def test_phases_that_do_not_cover_the_step_do_not_stand_for_it() -> None:
    builder = RunBuilder()
    part = builder.part("train")
    for _ in range(6):
        rows = builder.step(part, 10, {"forward": 6})
        builder.rows[rows["forward"]]["metrics"] = {"cycles:counted": 700, "instructions:counted": 700}
    found = counted(builder.run())
    assert found.step.counters == {} and values(found.phases["forward"])["cycles"] == 700


def test_two_phases_of_one_name_add_up_and_one_that_is_not_known_spoils_the_sum() -> None:
    def run(second: float):
        builder = RunBuilder()
        part = builder.part("train")
        for _ in range(6):
            rows = builder.step(part, 10, {"forward": 5, "backward": 4})
            builder.rows[rows["forward"]]["metrics"] = {"cycles:counted": 100.0}
            builder.add("phase", "forward", rows["step"], builder.rows[rows["step"]]["start"] + 9 * MS, MS,
                        metrics={"cycles:counted": second})  # fmt: skip
        return builder.run()

    assert values(counted(run(11.0)).phases["forward"])["cycles"] == 111
    assert counted(run(float("nan"))).phases["forward"].counters == {}


def test_warmup_does_not_count() -> None:
    builder = RunBuilder()
    part = builder.part("train")
    for step in range(10):
        rows = builder.step(part, 10, {"forward": 10}, pass_="warmup" if step < 3 else "timed")
        builder.rows[rows["forward"]]["metrics"] = {"cycles:counted": 5000.0 if step < 3 else 100.0 + step}
    assert values(counted(builder.run()).step)["cycles"] == 106


@pytest.mark.parametrize(
    "metrics",
    [
        {"page_faults:counted": 3.0, "task_clock:counted": 9e6},
        {"energy:estimated": 2.0, "energy_low:estimated": 1.0, "energy_high:estimated": 3.0},
    ],
    ids=["system", "power model"],
)
def test_what_the_system_counts_and_what_a_power_model_says_is_no_hardware(metrics: dict[str, float]) -> None:
    builder = RunBuilder()
    part = builder.part("train")
    for _ in range(6):
        rows = builder.step(part, 10, {"forward": 10})
        builder.rows[rows["forward"]]["metrics"] = metrics
    assert summarise(builder.run()).parts[0].counted is None


def test_a_run_without_metrics_has_no_counters() -> None:
    assert summarise(stepped([10.0] * 8)).parts[0].counted is None


# ---- through the real collector ---------------------------------------------------------------------------------


def test_groups_counted_by_the_kernel_become_shares_of_an_invented_core(tmp_path: Path) -> None:
    """Software events stand in for a core's: the way from the kernel to the shares is the real one."""
    directory = tmp_path / "events"
    directory.mkdir()
    names = {"cycles": 1, "instructions": 2, "switches": 3, "moves": 4}
    turns = (("cycles", "instructions", "switches"), ("cycles", "instructions", "moves"))
    asked = [[{"name": one, "type": 1, "config": names[one], "kernel": True} for one in turn] for turn in turns]
    (directory / "counting.json").write_text(json.dumps({"groups": asked, "children": False, "layers": True}))
    outcome = Nursery().run("plain", directory=directory, observe=True)
    assert outcome.code == 0 and outcome.assembly is not None
    state = outcome.assembly.counting.get("pmu", {})
    if "errno" in state:
        pytest.skip(f"needs perf_event_open for software events: errno {state['errno']}")
    invented = {
        "name": "invented", "approximate": True,
        "categories": [{"name": "switching", "formula": "switches / cycles"},
                       {"name": "rest", "formula": "1 - switching"}],
    }  # fmt: skip
    spans = outcome.assembly.spans
    run = with_spans(spans, target={"spec": "", "device": "cpu", "threads": 1, "topdown": invented})
    part = parts(run)[0]
    places = read_places(part)
    turn, groups = groups_of(places)
    known = turn[turn >= 0]
    assert set(groups) == {("switches",), ("moves",)}
    assert (np.diff(known) != 0).all()  # a step each
    # The kernel counted ns of the processor: a step has at least what its phases have.
    inside = np.nansum([readings.values["cycles"] for readings in places.phases.values()], axis=0)
    whole = places.step.values["cycles"]
    assert (whole[~np.isnan(whole)] > 0).all() and (whole >= inside - 1)[~np.isnan(whole)].all()
    summary = summarise(run).parts[0]
    assert summary.topdown is not None and summary.counted is not None
    shares = divide(places.step.values["switches"], whole)[part.measured]
    expected = float(np.median(shares[~np.isnan(shares)]))
    assert summary.topdown.step.shares["switching"].value.value == pytest.approx(expected)
    assert summary.topdown.step.shares["rest"].value.value == pytest.approx(1 - expected)
    assert summary.topdown.step.shares["rest"].value.source == "derived"
