"""A study of trainings: time from timing runs, joules from energy runs, all against a base; every figure by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from docs_commands import REPOSITORY
from sonda.analysis.run_summary import summarise
from sonda.record.run import CoolDown, Run
from sonda.report.screen import render
from sonda.report.views.study.screen import study_blocks
from sonda.report.words import in_words, word_findings
from sonda.studies.catalogue import _document, add_statistics
from sonda.studies.engine.plan import ENERGY, TIME, StudyPoint, plan_points
from sonda.studies.engine.runner import StudyResult
from sonda.studies.figures.labels import label, topic
from sonda.studies.figures.registry import parse_figure
from sonda.studies.file.loader import load_study
from sonda.studies.file.study import Published, Study
from sonda.studies.results.optimisations import optimisations
from sonda.studies.results.table import StudyCell, StudyTable, study_table
from training_examples import trained

METRICS = (
    "whole_s", "training_s", "validation_epoch_s", "accuracy_percent", "best_accuracy_percent",
    "validation_accuracy_percent@1", "time_to_accuracy_s@60", "epochs_to_accuracy@60", "time_to_accuracy_s@99",
    "speedup", "speedup@processor", "training_speedup", "scaling_percent", "training_scaling_percent", "amdahl_speedup",
    "serial_percent", "energy_J", "energy_with_idle_J", "energy_J@cuda:0", "energy_to_accuracy_J@60", "edp_kJs",
    "power_W", "relative_edp", "relative_edp_with_idle",
)  # fmt: skip
STUDY = Study(
    "constructed",
    {"workload": "resnet34", "train": True},
    {},
    repeat=2,
    protocol="energy-interleaved",
    energy=1,
    metrics=METRICS,
    base="one",
    variants={
        "processor": {"on": "cpu", "repeat": 1},
        "one": {"on": "cuda:0"},
        "two": {"on": "ddp=cuda:0+cuda:1"},
    },
    published=(Published({"variant": "two"}, {"speedup": 1.79, "relative_edp": 0.56}, "table 4.2", "2 K20m"),),
)
WATTS = {"cpu": 60.0, "cuda:0": 140.0, "cuda:1": 16.0}


def worded_document(result: StudyResult) -> dict[str, Any]:
    return word_findings(_document(result))


def one_run(point: StudyPoint) -> Run:
    """The processor takes 1200 s, one GPU 100 or 104 s, and 120 s in its energy run; two GPUs take 52 s.

    One GPU: two epochs of 45 (47, 55) s of training and 2 s of validation, a test of 6 s. Two: 21 s, the rest the same.
    """
    variant, number = point.configuration["variant"], point.repetition
    more: dict[str, Any] = {
        "id": point.identity, "point": point.record(), "disturbed": ["others"] if number == 2 else [],
        "machine": {"conditions": {"signs": ["others", "use"]}} if number == 2 else {},
    }  # fmt: skip
    if point.measures == ENERGY:
        more |= {"watts": WATTS, "used": ("cpu", "cuda:0") if variant == "one" else ("cpu",)}
    if variant == "two" and point.measures == ENERGY:
        more |= {"watts": {**WATTS, "cuda:1": 140.0}, "used": ("cpu", "cuda:0", "cuda:1")}
    if variant == "processor":
        return trained([590, 590], [5, 5], 10, [0.5, 0.8], 0.8, **more)
    if variant == "two":
        return trained([21, 21], [2, 2], 6, [0.5, 0.7], 0.74, ranks=2, **more)
    train = 55.0 if point.measures == ENERGY else 45.0 + 2 * (number - 1)
    return trained([train, train], [2, 2], 6, [0.5, 0.7], 0.8 + 0.02 * number, **more)


def result(study: Study = STUDY, without: tuple[str, ...] = ()) -> StudyResult:
    points = [one for one in plan_points(study) if one.configuration["variant"] not in without]
    runs = tuple((point, one_run(point)) for point in points)
    return StudyResult(study, runs, (), len(runs))


@pytest.fixture(scope="module")
def table() -> StudyTable:
    return study_table(result(), summarise)


def cell(table: StudyTable, variant: str, figure: str) -> StudyCell:
    (row,) = [row for row in table.rows if row.configuration["variant"] == variant]
    return next(one for one in row.cells if one.figure == figure)


def value(table: StudyTable, variant: str, figure: str) -> float | None:
    return cell(table, variant, figure).value.value


def test_times_and_accuracies_are_those_of_timing_runs(table: StudyTable) -> None:
    whole = cell(table, "one", "whole_s")
    assert whole.values == (100.0, 104.0)
    assert (whole.value.value, whole.n) == (102.0, 2)
    assert whole.spread is not None
    assert (whole.spread.mean, whole.spread.minimum, whole.spread.maximum) == (102.0, 100.0, 104.0)
    assert value(table, "one", "training_s") == 92.0
    assert value(table, "one", "validation_epoch_s") == 2.0
    assert value(table, "one", "accuracy_percent") == pytest.approx(83)
    assert value(table, "one", "best_accuracy_percent") == pytest.approx(70)
    assert value(table, "one", "validation_accuracy_percent@1") == pytest.approx(50)


def test_an_accuracy_takes_the_time_of_all_epochs_until_then(table: StudyTable) -> None:
    assert value(table, "one", "time_to_accuracy_s@60") == pytest.approx((94 + 98) / 2)
    assert value(table, "two", "epochs_to_accuracy@60") == 2
    never = cell(table, "two", "time_to_accuracy_s@99").value
    assert (never.value, never.reason) == (None, "not measured: at most 70.0 % was reached, not 99 %")


def test_speed_ups_are_against_the_base_or_the_variant_that_is_named(table: StudyTable) -> None:
    speedup = cell(table, "two", "speedup")
    assert speedup.value.value == pytest.approx(102 / 52)
    assert speedup.value.low is not None and speedup.value.low < 102 / 52
    assert speedup.published[0].ratio == pytest.approx(102 / 52 / 1.79)
    assert value(table, "one", "speedup@processor") == pytest.approx(1200 / 102)
    assert value(table, "one", "speedup") == pytest.approx(1)
    assert cell(table, "one", "speedup").value.low is None, "nothing is uncertain about the base against itself"
    assert value(table, "two", "training_speedup") == pytest.approx(92 / 42)


def test_efficiency_amdahl_and_the_serial_share(table: StudyTable) -> None:
    assert value(table, "two", "scaling_percent") == pytest.approx(50 * 102 / 52)
    share = cell(table, "two", "training_scaling_percent").value
    assert share.value == share.high == 100, "92/42 with two devices is beyond the ideal, but not beyond its interval"
    assert share.low == pytest.approx(50 * 1.6578, abs=0.01), "half of what the speed-up is at least"
    serial = (10 / 100 + 10 / 104) / 2
    assert value(table, "two", "amdahl_speedup") == pytest.approx(1 / (serial + (1 - serial) / 2))
    assert value(table, "two", "serial_percent") == pytest.approx(100 * (52 / 102 - 0.5) / 0.5)
    assert (
        cell(table, "one", "serial_percent").value.reason == "not measured: there are no more devices than in the base"
    )


def test_joules_are_those_of_energy_runs_with_and_without_idle_devices(table: StudyTable) -> None:
    """One GPU: 120 s at 60 + 140 W, and 16 W of the other. Two: 52 s at 340 W."""
    assert value(table, "one", "energy_J") == pytest.approx(120 * 200)
    assert value(table, "one", "energy_with_idle_J") == pytest.approx(120 * 216)
    assert value(table, "one", "energy_J@cuda:0") == pytest.approx(120 * 140)
    assert value(table, "one", "energy_to_accuracy_J@60") == pytest.approx(114 * 200)
    assert value(table, "one", "power_W") == pytest.approx(200)
    assert value(table, "one", "edp_kJs") == pytest.approx(120 * 120 * 200 / 1000)
    assert cell(table, "one", "energy_J").n == 1
    assert value(table, "two", "relative_edp") == pytest.approx(52 * 52 * 340 / (120 * 120 * 200))
    assert value(table, "two", "relative_edp_with_idle") == pytest.approx(52 * 52 * 340 / (120 * 120 * 216))
    assert value(table, "processor", "relative_edp") == pytest.approx(1200**2 * 60 / (120**2 * 200))


def test_what_lacks_its_base_or_its_sensor_says_so() -> None:
    late = study_table(result(without=("one",)), summarise)
    assert cell(late, "two", "speedup").value.reason == "not measured: the base is not measured yet"
    baseless = study_table(result(dataclasses.replace(STUDY, base="")), summarise)
    assert cell(baseless, "two", "speedup").value.reason == "not measured: the study names no base"
    assert cell(baseless, "one", "speedup@processor").value.value == pytest.approx(1200 / 102)
    blind = study_table(result(dataclasses.replace(STUDY, energy=0)), summarise)
    for figure in ("edp_kJs", "relative_edp"):
        assert cell(blind, "one", figure).value.reason == "not measured: it has no energy runs"


def test_a_figure_says_what_became_of_the_runs_that_would_tell_it() -> None:
    whole = result()
    lost = {point.measures: point for point, _ in whole.runs if point.configuration["variant"] == "two"}
    for measures, figures, why in (
        (ENERGY, ("energy_J", "relative_edp"), "energy run 1: the disk is full"),
        (TIME, ("whole_s",), "repetition 1: the disk is full"),
    ):
        runs = tuple(
            (point, run)
            for point, run in whole.runs
            if (point.configuration["variant"], point.measures) != ("two", measures)
        )
        point = dataclasses.replace(lost[measures], repetition=1)
        table = study_table(StudyResult(STUDY, runs, ((point, "the disk is full"),), len(runs)), summarise)
        for figure in figures:
            assert cell(table, "two", figure).value.reason == f"not measured: {why}"


def test_what_a_power_model_says_keeps_its_bounds_and_is_called_estimated() -> None:
    runs = [
        (point, trained([100], watts={"cpu": 50.0}, source="estimated", id=point.identity, point=point.record()))
        for point in plan_points(STUDY) if point.measures == ENERGY and point.configuration["variant"] == "one"
    ]  # fmt: skip
    table = study_table(StudyResult(STUDY, tuple(runs), (), 1), summarise)
    found = cell(table, "one", "energy_J").value
    assert (found.value, found.source) == (pytest.approx(5000), "estimated")
    assert (found.low, found.high) == (pytest.approx(3000), pytest.approx(7000))
    assert "energy covers CPU packages, estimated by a power model" in in_words(table.notes)


def test_a_single_energy_run_has_the_bounds_of_its_readings_and_one_without_joules_is_counted() -> None:
    """100 s at 50 W between readings of a second, of at most 1,000 W; a training of 1.5 s cannot be told."""
    runs = [
        (point, trained([100.5 if point.repetition == 1 else 1.5], watts={"cpu": 50.0}, id=point.identity,
                        point=point.record()))
        for point in plan_points(dataclasses.replace(STUDY, energy=2))
        if point.measures == ENERGY and point.configuration["variant"] == "one"
    ]  # fmt: skip
    table = study_table(StudyResult(STUDY, tuple(runs), (), 2), summarise)
    found = cell(table, "one", "energy_J").value
    assert (found.value, found.low, found.high) == (pytest.approx(5025), pytest.approx(5000), pytest.approx(5050))
    said = "1 of 2 energy runs tell no energy: 1.5 s are too short for counters that are read every 1 s"
    assert said in in_words(table.notes)


def test_curves_scaling_and_disturbances_are_in_the_document() -> None:
    document = worded_document(result())
    by_name = {row["configuration"]["variant"]: row for row in document["rows"]}
    assert [point["accuracy"]["mean"] for point in by_name["one"]["curve"]] == pytest.approx([0.5, 0.7])
    assert [point["n"] for point in by_name["one"]["curve"]] == [2, 2], "energy runs are not in the curve"
    assert [by_name[name]["disturbed"] for name in ("processor", "one", "two")] == [0, 1, 1]
    note = next(note for note in document["notes"] if "disturbed" in note)
    assert note.startswith(
        "2 of 8 runs were disturbed by other programs (they used cores in 2, the program lacked cores in 2); stop them"
    )
    curve = document["scaling"]
    assert (curve["base"], curve["devices"]) == ("one", 1)
    assert [(point["name"], point["devices"]) for point in curve["points"]] == [
        ("processor", 1), ("one", 1), ("two", 2),
    ]  # fmt: skip
    assert [count for count, _ in curve["bound"]] == [1, 2]
    assert curve["bound"][1][1] == pytest.approx(1 / (curve["serial"] / 2 + 0.5))


def test_waiting_is_told_below_the_table() -> None:
    runs = []
    for number, (point, run) in enumerate(result().runs):
        cool = {"waited_s": 7.0, "start": {"cpu": 40.0}, "before": {"cpu": 49.0}, "after": {"cpu": 42.0}}
        cool |= {"reason": "not back after 7 s: cpu 50 °C, 40 °C at the beginning"} if number == 3 else {}
        run.info.cool_down = CoolDown(**cool)
        runs.append((point, run))
    notes = in_words(study_table(StudyResult(STUDY, tuple(runs), (), 0), summarise).notes)
    assert "before 8 runs 56 s were waited in all until the machine was cool again" in notes
    assert "1 of 8 runs began warmer than the first: not back after 7 s: cpu 50 °C, 40 °C at the beginning" in notes
    for _, run in runs:
        run.info.cool_down = CoolDown(waited_s=10.2, reason="no temperature can be read on this machine")
    notes = in_words(study_table(StudyResult(STUDY, tuple(runs), (), 0), summarise).notes)
    assert "no temperature can be read on this machine: runs had 10 s of rest between them at most" in notes


def test_the_screen_has_a_row_for_every_variant_and_a_table_for_every_topic() -> None:
    text = render(study_blocks(worded_document(result()), 200), 200, False)
    lines = text.splitlines()
    for title in ("  Time", "  Accuracy", "  Against one", "  Energy"):
        assert title in lines
    against = lines.index("  Against one")
    assert lines[against + 1].split("   ")[0].strip() == "variant"
    assert "speed-up against processor   speed-up of training" in lines[against + 1]
    two = next(line for line in lines[against:] if line.strip().startswith("two"))
    assert two.split()[1].startswith("1.96")
    assert "mean" not in text


def test_a_table_that_is_too_wide_goes_on_below() -> None:
    lines = render(study_blocks(worded_document(result()), 80), 80, False).splitlines()
    assert "  Against one: continued" in lines
    assert not any("left out" in line for line in lines)
    assert max(map(len, lines)) <= 80


def test_a_variant_that_does_other_work_is_not_held_against_the_base() -> None:
    larger = {**STUDY.variants, "larger": {"on": "cuda:0", "image": "295x222"}}
    table = study_table(result(dataclasses.replace(STUDY, variants=larger)), summarise)
    for figure in ("speedup", "relative_edp"):
        assert cell(table, "larger", figure).value.reason == ("not measured: it does other work than the base (image)")
    assert cell(table, "larger", "whole_s").value.value is not None
    (found,) = optimisations(result(dataclasses.replace(STUDY, variants=larger)), summarise)
    assert {one.name for one in found.options} == set(STUDY.variants) - {STUDY.base}


def test_an_axis_of_one_variant_alone_is_in_its_name() -> None:
    split = dataclasses.replace(STUDY, axes={"split": ("a",)})
    variants = {**STUDY.variants, "shares": {"on": "cpu", "image": "37x28", "split": ["a", "b"]}}
    lines = render(
        study_blocks(worded_document(result(dataclasses.replace(split, variants=variants))), 120), 120, False
    )
    rows = [line.strip().split("   ")[0] for line in lines.splitlines()]
    assert {"processor", "one", "two", "shares, a", "shares, b"} <= set(rows)


def test_figures_of_devices_together_are_what_ranks_and_the_outlook_say() -> None:
    """F = 960 / 320 = 3, so 1 + 1/3 at most; 12 and 4 of 16 samples."""
    outlook = {"alone_ns": [320e6, 960e6], "bound": 4 / 3, "speedup": 0.997, "communication_ns": 81e6}
    ranks = [
        {"rank": 0, "samples": 12, "worked_ns": 240e6, "waited_ns": 3e6},
        {"rank": 1, "samples": 4},
        {"rank": 2, "left_out": True},
    ]
    run = trained([10], target={"mode": "hybrid", "ranks": ranks, "outlook": outlook})
    summary = summarise(run)
    wanted = {
        "load_factor": 3.0, "bound_speedup": 4 / 3, "predicted_speedup": 0.997, "communication_ms": 81.0,
        "work_ms": 240.0, "wait_ms@0": 3.0, "samples_share_percent@1": 25.0, "devices": 2.0,
    }  # fmt: skip
    assert {key: parse_figure(key).value_of(summary).value for key in wanted} == pytest.approx(wanted)
    # A sum of exchanges that were measured one by one; what ranks did was measured as it was.
    assert [parse_figure(key).value_of(summary).source for key in ("communication_ms", "work_ms")] == [
        "derived",
        "measured",
    ]
    reasons = {key: parse_figure(key).value_of(summary).reason for key in ("work_ms@1", "work_ms@2")}
    assert reasons == {
        "work_ms@1": "only the device knows how long its steps took", "work_ms@2": "rank 2 did not train",
    }  # fmt: skip
    alone = summarise(trained([10]))
    for key in ("load_factor", "wait_ms@1"):
        assert parse_figure(key).value_of(alone).reason == "one device has nobody to share with"


def test_statistics_are_shown_where_they_are_asked_for() -> None:
    document = add_statistics(worded_document(result()), "mean, maximum")
    lines = render(study_blocks(document, 120), 120, False).splitlines()
    title = lines.index("  whole s, mean, maximum")
    assert lines[title + 1].split() == ["variant", "median", "mean", "maximum", "runs"]
    one = next(line for line in lines[title:] if line.strip().startswith("one"))
    # 100 and 104: half a range of 12.706 x 2, Student's t of one degree of freedom, in percent of 102.
    assert one.split() == ["one", "102", "±2", "%", "102", "±25", "%", "104", "2"]


@pytest.mark.parametrize(
    ("key", "where", "name"),
    [
        ("speedup", "Against the base", ""),
        ("speedup@processor", "Against the base", "speed-up against processor"),
        ("scaling_percent@one device", "Against the base", "% of ideal speed-up against one device"),
        ("relative_edp@processor", "Energy", "energy-delay product, times that of processor"),
        ("time_to_accuracy_s@80", "Accuracy", "time to 80 %, s"),
        ("epochs_to_accuracy@80", "Accuracy", "epochs to 80 %"),
        ("energy_to_accuracy_with_idle_J@80", "Energy", "energy with idle to 80 %, J"),
        ("wait_ms@1", "Devices together", "rank 1 wait ms"),
        ("validation_accuracy_percent@3", "Accuracy", "validation accuracy % of epoch 3"),
        ("step_ms", "", ""),
        ("cycles@embeddings", "", ""),
    ],
)
def test_columns_have_a_table_and_a_name(key: str, where: str, name: str) -> None:
    figure = parse_figure(key)
    assert figure.measurable
    assert (topic(figure), label(figure)) == (where, name)


@pytest.mark.parametrize(
    ("variant", "watts", "used", "epoch", "validation", "test"),
    [
        ("fast device", (60.0, 140.0), ("cpu", "cuda:0"), 45, 2, 6),
        ("hybrid", (90.0, 140.0), ("cpu", "cuda:0"), 43, 2, 6),
        ("slow device", (90.0, 16.0), ("cpu",), 590, 5, 10),
    ],
)
def test_the_page_of_the_hybrid_study_shows_what_constructed_sensors_give(
    variant: str, watts: tuple[float, float], used: tuple[str, ...], epoch: float, validation: float, test: float
) -> None:
    study = load_study("hybrid")

    def run(point: StudyPoint) -> Run:
        name = point.configuration["variant"]
        drawn = (watts, used, epoch, validation, test) if name == variant else ((60, 140), ("cpu", "cuda:0"), 45, 2, 6)
        (cpu, gpu), by, train, validate, tested = drawn
        more = {"watts": {"cpu": cpu, "cuda:0": gpu}, "used": by} if point.measures == ENERGY else {}
        more |= {"id": point.identity, "point": point.record()}
        return trained([train] * 2, [validate] * 2, tested, [0.5, 0.8], 0.8, **more)

    points = [one for one in plan_points(study) if one.configuration["variant"] in (variant, "fast device")]
    table = study_table(StudyResult(study, tuple((one, run(one)) for one in points), (), len(points)), summarise)
    shown = [value(table, variant, key) for key in ("whole_s", "energy_J", "energy_with_idle_J")]
    ratios = [value(table, variant, key) for key in ("relative_edp", "relative_edp_with_idle")]
    page = (REPOSITORY / "docs" / "studies" / "hybrid.md").read_text(encoding="utf-8")
    constructed = page.split("| variant, constructed |")[1]
    (printed,) = [line for line in constructed.splitlines() if line.startswith(f"| {variant} |")]
    assert (
        printed == f"| {' | '.join([variant, *(f'{one:,.0f}' for one in shown), *(f'{one:.4g}' for one in ratios)])} |"
    )
