"""Studies of processors: figures of counters, of a modelled step, of Top-Down and of programs side by side."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plain_runs import run_info
from sonda.analysis.change_points import Change, Drift
from sonda.analysis.comparison.findings import FoundInRun
from sonda.analysis.corun.interference import Company, Interference
from sonda.analysis.counters.callgrind import MissPoint, Modelled, ModelledLayer, ModelledPhase, ModelledSummary
from sonda.analysis.counters.findings import SeriesDrift
from sonda.analysis.counters.summary import Counted, CounterSummary, OverTime, Series, Share, Slots, TopDown
from sonda.analysis.doubts import ProbeSilent
from sonda.analysis.findings import Remark
from sonda.analysis.summary import LayerRow, Summary, Value
from sonda.record.conventions.topdown import Category, TopDownDefinition
from sonda.record.errors import SondaError
from sonda.record.run import Run
from sonda.record.store import Store
from sonda.report.screen import render
from sonda.report.views.study.screen import study_blocks
from sonda.studies.catalogue import load_scaled
from sonda.studies.engine.corun_point import check_company, corun_setting_of, has_company, options_alone, participants
from sonda.studies.engine.measurement import measuring
from sonda.studies.engine.plan import configurations, plan_points
from sonda.studies.engine.runner import StudyResult
from sonda.studies.figures.callgrind import cache_size
from sonda.studies.figures.registry import parse_figure
from sonda.studies.file.loader import load_study, read_study
from sonda.studies.file.mistakes import StudyMistakes
from sonda.studies.file.study import Study
from sonda.studies.file.vocabulary import vocabulary_of_sonda
from sonda.studies.results.table import study_table
from study_table_cases import phase, summary

NAN = Value(None, "1", "modelled", reason="not looked at")


def system(**values: float) -> dict[str, Value]:
    return {f"{name}:counted": Value(value, "1", "counted") for name, value in values.items()}


def hardware(ipc: float, **counters: float) -> Counted:
    """Constructed: so many instructions a cycle, and other counters; of misses, those per 1,000 instructions."""
    misses = {name: Value(value, "1", "derived") for name, value in counters.items() if "miss" in name}
    counts = {name: Value(value, "1", "counted") for name, value in counters.items() if "miss" not in name}
    return Counted(counts, Value(ipc, "1", "derived"), misses)


def slots(**shares: float) -> Slots:
    nothing = Value(0.0, "1", "derived")
    return Slots({name: Share(Value(share, "1", "derived"), True) for name, share in shares.items()}, nothing, {}, ())


LAYER = LayerRow("features.0", "Conv2d", 1, True, 1, NAN, NAN, NAN, phase("", 1.0, None, None, None).cost, NAN)
TABLE = TopDownDefinition("constructed", (Category("retiring", "retired / cycles"),))


def with_counters(step: dict[str, Value], **phases: dict[str, Value]) -> Summary:
    rows = tuple(
        dataclasses.replace(phase(name, 1e6, None, None, None), counters=found) for name, found in phases.items()
    )
    return with_part(summary(10.0, rows), counters=step, layers=(LAYER,))


def with_part(found: Summary, **changes: Any) -> Summary:
    return dataclasses.replace(found, parts=(dataclasses.replace(found.parts[0], **changes),))


def value(key: str, found: Summary) -> float | None:
    return parse_figure(key).value_of(found).value


def reason(key: str, found: Summary) -> str:
    cell = parse_figure(key).value_of(found)
    assert cell.value is None
    return cell.reason


# ---- counters -----------------------------------------------------------------------------------------------------


def test_what_the_system_counts_of_the_step_and_of_its_phases() -> None:
    found = with_counters(system(page_faults=150, task_clock=12e6), forward=system(page_faults=100, task_clock=8e6))
    assert value("page_faults", found) == 150 and value("page_faults@forward", found) == 100
    assert value("task_clock_ms", found) == 12 and value("task_clock_ms@forward", found) == 8
    assert reason("page_faults@backward", found) == "its steps have no backward"
    assert reason("page_faults@features.0", found) == "the system counts phases, not layers"
    assert reason("page_faults@features.9", found) == "the model has no such module"
    assert "too short" in reason("context_switches", found)


def test_hardware_counters_of_the_step_its_phases_and_layers() -> None:
    counted = CounterSummary(
        step=hardware(1.5, instructions=9e6, longest_lat_cache_miss=2.5), phases={"forward": hardware(2.0)},
        layers={"features.0": hardware(0.5)}, groups=(), stationary=None, findings=(),
    )  # fmt: skip
    found = with_part(with_counters({}), counted=counted)
    assert [value(key, found) for key in ("ipc", "ipc@forward", "ipc@features.0")] == [1.5, 2.0, 0.5]
    assert value("instructions", found) == 9e6 and value("mpki", found) == 2.5
    assert reason("mpki@forward", found) == "it was not counted"
    assert reason("ipc@optimizer", found) == "its steps have no optimizer"
    assert reason("ipc@features.9", found) == "the model has no such module"


def test_counts_that_are_estimates_keep_their_source() -> None:
    estimate = Counted({"instructions": Value(5e6, "1", "estimated")}, NAN, {})
    found = with_part(with_counters({}), counted=CounterSummary(estimate, {}, {}, (), None, ()))
    cell = parse_figure("instructions").value_of(found)
    assert (cell.value, cell.source) == (5e6, "estimated")


def test_a_missing_counter_has_the_reason_of_its_probe() -> None:
    bare = with_counters({}, forward={})
    assert "needs a PMU" in reason("ipc", bare) and "needs a PMU" in reason("retiring_percent", bare)
    said = dataclasses.replace(
        bare, notes=(Remark("observing took 1 %"), ProbeSilent("pmu", "no PMU in this virtual machine", "use another"))
    )
    for key in ("ipc", "instructions", "mpki", "retiring_percent", "retiring_percent@forward", "ipc@features.0"):
        assert reason(key, said) == "no PMU in this virtual machine; use another"


def test_topdown_of_the_step_its_phases_and_layers() -> None:
    topdown = TopDown(TABLE, slots(retiring=0.25, memory_bound=0.3), {"forward": slots(retiring=0.75)},
                      {"features.0": slots(retiring=0.125)}, {}, (), ())  # fmt: skip
    found = with_part(with_counters({}), topdown=topdown)
    keys = ("retiring_percent", "retiring_percent@forward", "retiring_percent@features.0", "memory_bound_percent")
    assert [value(key, found) for key in keys] == pytest.approx([25, 75, 12.5, 30])
    assert reason("smt_contention_percent", found) == "constructed has no smt contention"
    assert reason("retiring_percent@backward", found) == "its steps have no backward"


def test_changes_over_time_are_counted_and_said(tmp_path: Path) -> None:
    series = (
        Series("step time", "ns", "measured", (), (), (Change(5, 20, 1.0, 2.0), Change(20, 30, 2.0, 1.0))),
        Series("page faults", "1", "counted", (), (), (), Drift(1.0, 3.0)),
    )
    drift = SeriesDrift("train", "page faults", "1", 1.0, 3.0, 30)
    over = OverTime(series, (drift,))
    found = with_part(with_counters({}), over_time=over)
    assert value("changes", found) == 2 and value("changes@page faults", found) == 1
    assert reason("changes@IPC", found) == "there is no series of IPC"
    for metrics, expected in ((("changes",), 1), (("step_ms",), 0)):
        study = Study("s", {"workload": "mlp"}, {"batch": (4,)}, metrics=metrics)
        [point] = plan_points(study)
        run = kept(Store(tmp_path), point)
        notes = study_table(StudyResult(study, ((point, run),), (), 1), lambda run: found).notes
        assert [note for note in notes if isinstance(note, FoundInRun)] == [FoundInRun("4", run.id, drift)] * expected


# ---- a modelled step ----------------------------------------------------------------------------------------------


def modelled(instructions: float, whole: float, ll_misses: float = 0.0, misses: float = 0.0) -> Modelled:
    """Constructed: so many instructions of `whole`, with misses per 1,000 of them."""
    counters = {"instructions": instructions, "ll_load_misses": misses, "ll_store_misses": misses / 2}
    return Modelled(
        counters={name: Value(count, "1", "modelled") for name, count in counters.items()},
        share=instructions / whole, loads=NAN, stores=NAN, branches=NAN, l1_misses=NAN, l1_instruction_misses=NAN,
        ll_misses=Value(ll_misses, "1", "modelled"), mispredictions=NAN, misprediction_rate=NAN,
        memory_bytes=Value(64.0 * misses, "B", "modelled"),
    )  # fmt: skip


def with_model() -> Summary:
    layers = [("stages", 0.0, 0.0), ("stages.0", 300.0, 2.0), ("stages.0.conv", 100.0, 6.0), ("stages.01", 50.0, 1.0)]
    found = ModelledSummary(
        tool="callgrind", caches={}, isa="AVX2", native_isa="AVX2", threads=1, part="train", complete=True,
        step=modelled(1000, 1000, 3.0, 200), outside=modelled(50, 1000),
        phases=(ModelledPhase("forward", modelled(600, 1000, 4.0, 120)),),
        layers=tuple(ModelledLayer(path, "M", True, NAN, NAN, modelled(count, 1000, mpki))
                     for path, count, mpki in layers),
        findings=(),
        curve=(MissPoint(512 << 10, "", {"forward": 70.0, "backward": 30.0}, {}, 1000.0),),
    )  # fmt: skip
    return dataclasses.replace(summary(10.0), modelled=found)


def test_a_modelled_step_is_read_at_phases_and_modules() -> None:
    found = with_model()
    assert value("modelled_instructions", found) == 1000 and value("modelled_instructions@forward", found) == 600
    assert value("modelled_mpki", found) == 3.0 and value("modelled_mpki@forward", found) == 4.0
    # A module with what is inside it, and not its namesake: 300 + 100 of 1000; (300 x 2 + 100 x 6) / 400 misses.
    assert value("modelled_share_percent@stages.0", found) == pytest.approx(40)
    assert value("modelled_mpki@stages.0", found) == pytest.approx(3.0)
    assert value("modelled_instructions@stages", found) == 450
    assert reason("modelled_share_percent@stem", found) == "the model has no such module"
    assert reason("modelled_mpki@backward", found) == "its steps have no backward"


def test_the_miss_curve_is_read_by_size() -> None:
    found = with_model()
    # 120 loads and 60 stores miss in the only phase; the step's 300 have those between phases, which no point has.
    assert value("modelled_misses", found) == 180 and value("modelled_misses@512KiB", found) == 100
    assert 'probe = "callgrind:2MiB"' in reason("modelled_misses@2MiB", found)
    assert value("modelled_misses@512K", found) == 100, "as the probe reads it: --probe callgrind:512K"
    assert [cache_size(text) for text in ("512KiB", "512K", "2MiB", "64B", "2", "xMiB", "²MiB", "1MiB+2MiB")] == [
        512 * 1024, 512 * 1024, 2 * 1024**2, None, None, None, None, None,
    ]  # fmt: skip


def test_a_run_that_was_not_modelled_says_why() -> None:
    assert 'probe = "callgrind"' in reason("modelled_mpki", summary(10.0))
    said = dataclasses.replace(
        summary(10.0), notes=(ProbeSilent("callgrind", "valgrind is too old", "install another"),)
    )
    assert reason("modelled_mpki", said) == "valgrind is too old; install another"


# ---- programs side by side ----------------------------------------------------------------------------------------


def company(partition: str = "", slow: float = 2.0) -> Company:
    def one(number: float) -> Value:
        return Value(number, "1", "derived", number - 0.1, number + 0.1)

    return Company(
        members=("mlp", "cnn"), partition=partition, slowdowns={"mlp": one(slow), "cnn": one(1.25)},
        cpu_slowdowns={"mlp": one(1.5), "cnn": one(1.1)}, phases={"mlp": {"forward": one(2.5)}}, layers={},
        steps={"mlp": Value(6e6, "ns", "measured"), "cnn": Value(1e6, "ns", "measured")},
        counters={"mlp": {"ipc": one(0.5), "page_faults": one(7)},
                  "cnn": {"ipc": Value(None, "1", "counted", reason="no PMU")}},
        weighted_speedup=one(1 / slow + 0.8), harmonic_mean=one(0.6), fairness=one(1.25 / slow),
    )  # fmt: skip


def together(partitions: tuple[Company, ...] = (), partition_reason: str = "") -> Summary:
    both = company()
    counters = {"mlp": {"ipc": Value(2.0, "1", "counted")}, "cnn": {}}
    solo = dataclasses.replace(both, members=("mlp",), steps={"mlp": Value(3e6, "ns", "measured")}, counters=counters)
    found = Interference(
        run="r", title="", subtitle="", participants=("mlp", "cnn"), described=(), alone={"mlp": solo, "cnn": solo},
        pairs=(both,), together=both, partitions=partitions, partition_reason=partition_reason, monitor_reason="",
        pmu_reason="", warnings=(), notes=(),
    )  # fmt: skip
    return dataclasses.replace(summary(1.0), parts=(), corun=found)


def test_figures_of_a_corun() -> None:
    found = together()
    assert value("slowdown", found) == 2.0 and value("slowdown@with", found) == 1.25
    assert value("cpu_slowdown", found) == 1.5 and value("slowdown@forward", found) == 2.5
    assert value("weighted_speedup", found) == 1.3 and value("fairness", found) == 0.625
    assert value("alone_step_ms", found) == 3.0 and value("together_step_ms", found) == 6.0
    assert value("alone_ipc", found) == 2.0 and value("together_ipc", found) == 0.5
    assert value("together_page_faults", found) == 7.0 and reason("together_ipc@with", found) == "no PMU"
    assert reason("alone_cache_misses", found) == "not counted in this experiment"
    cell = parse_figure("slowdown").value_of(found)
    assert (cell.low, cell.high) == (1.9, 2.1)
    assert "no phase 'backward'" in reason("slowdown@backward", found)
    assert "side by side" in reason("step_ms", found) and "side by side" in reason("ipc", found)
    assert reason("slowdown", summary(1.0)) == "the workload ran alone"
    assert reason("fairness@mlp", found) == "it is of all programs together, not of mlp"


def test_ways_are_read_by_number_or_have_the_reason() -> None:
    swept = together((company("mlp 1 of 11 ways", 3.0), company("mlp 11 of 11 ways", 1.75)))
    assert value("slowdown@ways=1", swept) == 3.0 and value("slowdown@ways=11", swept) == 1.75
    assert value("fairness@ways=1", swept) == pytest.approx(1.25 / 3)
    assert reason("slowdown@ways=8", swept) == "no partition with 8 ways was measured"
    assert reason("slowdown@ways=1", together()) == "no partition was asked for"
    assert reason("slowdown@ways=1", together(partition_reason="no resctrl here")) == "no resctrl here"


def test_a_point_with_company_is_a_corun_of_its_workload_with_its_options() -> None:
    point = {"workload": "cnn", "with": "mlp --train + stress-cache", "seed": 0, "train": True, "batch": 8,
             "on": "cpu", "seconds": 2, "rounds": 4, "sweep_ways": True, "cores": "0,1"}  # fmt: skip
    assert has_company(point)
    assert participants(point) == ["cnn --seed=0 --train=true --batch=8", "mlp --train", "stress-cache"]
    found = corun_setting_of(point)
    assert (found.seconds, found.repeat, found.sweep) == (2.0, 4, True)
    check_company({**point, "cores": ""})


def test_a_point_with_nobody_is_an_ordinary_run() -> None:
    point = {"workload": "cnn", "with": "nobody", "batch": 8, "rounds": 1}
    assert not has_company(point) and options_alone(point) == {"workload": "cnn", "batch": 8}
    with pytest.raises(SondaError, match="rounds is for programs side by side"):
        options_alone({"workload": "cnn", "rounds": 1})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"with": "cmm"}, "cmm"),
        ({"with": "cnn --bach 8"}, "bach"),
        ({"with": "cnn", "probe": "callgrind"}, "--probe callgrind"),
        ({"with": "cnn", "seconds": 0}, "not a time"),
        ({"with": "cnn", "rounds": 0}, "too small"),
        ({"with": "cnn", "timeout": "long"}, "timeout cannot be long; give a number"),
        ({"with": "cnn", "rounds": 2.5}, "rounds cannot be 2.5; give a whole number"),
        ({"with": "cnn", "sweep-ways": "yes"}, "sweep_ways cannot be yes; write true or false"),
        ({"with": "cnn", "ways": "4,4", "sweep_ways": True}, "divide the same cache"),
        ({"cores": "0,1"}, "programs side by side"),
    ],
)
def test_mistakes_of_company_are_found_before_anything_runs(changes: dict[str, Any], said: str) -> None:
    assert said in vocabulary_of_sonda().configuration({"workload": "mlp", **changes})


def test_a_study_file_names_the_neighbour_that_is_none() -> None:
    text = '[study]\nname = "s"\n[workload]\nname = "mlp"\n[axes]\nwith = ["cnn", "cmm"]\n'
    with pytest.raises(StudyMistakes, match=r"s\.toml:6: axes\.with\[1\].*cmm"):
        read_study(text, "s.toml", vocabulary_of_sonda())


def kept(store: Store, point: Any) -> Run:
    info = run_info(id=point.identity, created="2026-01-01T00:00:00Z", status="complete", workload={}, target={})
    return Run(store.root, info)


def test_the_table_keeps_the_interval_of_a_single_corun_and_shows_a_matrix(tmp_path: Path) -> None:
    study = Study("s", {"workload": "mlp"}, {"workload": ("mlp", "cnn"), "with": ("cnn", "mlp")},
                  metrics=("slowdown", "ipc", "slowdown@ways=2"))  # fmt: skip
    points = plan_points(study)
    result = StudyResult(study, tuple((point, kept(Store(tmp_path), point)) for point in points), (), len(points))
    table = study_table(result, lambda run: together(partition_reason="no resctrl here"))
    for row in table.rows:
        assert (row.cells[0].value.low, row.cells[0].value.high) == (1.9, 2.1)
    document = {
        "study": "s", "question": "", "scale": "", "axes": list(table.axes), "compare": [], "compared": [],
        "columns": [{"figure": one.key, "unit": one.unit, "of": one.path} for one in table.columns],
        "rows": table.to_rows(), "deviations": [], "notes": [],
    }  # fmt: skip
    text = render(study_blocks(document, 100), 100, False)
    assert "a row suffers from a column" in text and "by cnn" in text and "by mlp" in text
    assert "ways=2 slowdown: no resctrl here" in text, text
    assert "instructions per cycle: it is not kept of programs side by side" in text


def test_what_only_a_later_variant_has_stands_in_a_table_of_its_own() -> None:
    def figure(number: float | None, why: str = "") -> dict[str, Any]:
        return {"value": number, "unit": "", "source": "modelled", "low": None, "high": None, "reason": why, "n": 1}

    def row(variant: str, neighbour: str, slowdown: dict[str, Any], misses: dict[str, Any]) -> dict[str, Any]:
        where = {"variant": variant, "workload": "mlp", "with": neighbour}
        figures = {"slowdown": slowdown, "modelled_misses@1MiB": misses, "slowdown@ways=1": figure(None, "no CAT")}
        return {"configuration": where, "runs": [], "figures": figures, "failures": []}

    document = {
        "study": "s", "question": "", "scale": "", "axes": ["variant", "workload", "with"], "compare": ["slowdown"],
        "compared": [], "deviations": [], "notes": [],
        "columns": [{"figure": "slowdown", "unit": "", "of": ""},
                    {"figure": "modelled_misses@1MiB", "unit": "", "of": "1MiB"},
                    {"figure": "slowdown@ways=1", "unit": "", "of": "ways=1"}],
        "rows": [row("pairs", "cnn", figure(1.5), figure(None, "it is not kept of programs side by side")),
                 row("curve", "nobody", figure(None, "the workload ran alone"), figure(4321.0))],
    }  # fmt: skip
    lines = render(study_blocks(document, 100), 100, False).splitlines()
    start = lines.index("  curve")
    assert lines[start + 1].split() == ["workload", "with", "1MiB", "modelled", "cache", "misses"]
    assert lines[start + 2].split() == ["mlp", "nobody", "4,321"]
    assert "  – ways=1 slowdown: no CAT" in lines, "what all variants share is said once"


# ---- the studies that ship ----------------------------------------------------------------------------------------


def test_topdown_phases_has_the_networks_and_both_passes() -> None:
    study = load_study("topdown-phases")
    points = configurations(study)
    assert {one["workload"] for one in points} == {"cnn", "mlp", "resnet18"}
    assert {one["probe"] for one in points} == {"pmu,callgrind"} and {one["train"] for one in points} == {True}
    for place in ("forward", "backward", "optimizer"):
        assert {f"ipc@{place}", f"retiring_percent@{place}", f"modelled_mpki@{place}"} <= set(study.metrics)
    small = load_scaled("topdown-phases", "small", None)
    assert len(plan_points(small)) == 4
    assert {one.get("framework", "torch") for one in points} == {"torch", "tensorflow"}


def test_corun_has_every_pair_a_sweep_and_a_miss_curve() -> None:
    points = configurations(load_study("corun"))
    pairs = {(one["workload"], str(one["with"]).split()[0]) for one in points if one["variant"] == "side by side"}
    networks = ("mlp", "cnn", "resnet18")
    assert {(a, b) for a in networks for b in networks} <= pairs
    assert {(a, f"stress-{kind}") for a in networks for kind in ("cache", "bandwidth", "compute")} <= pairs
    assert all(one.get("sweep_ways") is True for one in points if one["variant"] == "ways swept")
    curves = [one for one in points if one["variant"] == "miss curve"]
    assert len(curves) == 3 and not any(has_company(one) for one in curves)
    # Without CAT a sweep measures the same pair again: a ratio between the two would look like an effect of partitions.
    assert all("@ways=" in key for key in load_study("corun").compare)
    sizes = {key.partition("@")[2] for key in load_study("corun").metrics if key.startswith("modelled_misses@")}
    assert all(str(one["probe"]) == "callgrind:" + "+".join(sorted(sizes, key=lambda size: cache_size(size) or 0))
               for one in curves)  # fmt: skip


@pytest.mark.slow
def test_a_point_with_company_is_measured_and_kept_under_its_identity(tmp_path: Path) -> None:
    study = Study("s", {"workload": "mlp"}, {"with": ("stress-compute",)}, metrics=("slowdown",))
    study = dataclasses.replace(study, workload={"workload": "mlp", "seconds": 0.2, "rounds": 1, "timeout": 60})
    [point] = plan_points(study)
    store = Store(tmp_path)
    run = measuring(store)(point)
    assert (run.id, run.info.study, run.info.point["with"]) == (point.identity, "s", "stress-compute")
    from sonda.analysis.run_summary import summarise

    found = parse_figure("slowdown").value_of(summarise(run))
    assert found.value is not None and np.isfinite(found.value) and found.value > 0
