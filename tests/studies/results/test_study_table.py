"""The table of a study: medians over repetitions, and published figures beside them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plain_runs import run_info
from sonda.analysis.summary import Summary, Value
from sonda.record.errors import SondaError
from sonda.record.run import Run
from sonda.report.words import describe, in_words, word_findings
from sonda.studies.engine.plan import plan_points
from sonda.studies.engine.runner import StudyResult
from sonda.studies.figures.registry import parse_figure
from sonda.studies.file.study import Published, Study
from sonda.studies.results.table import StudyCell, StudyRow, StudyTable, study_table
from study_table_cases import phase, summary

STUDY = Study(
    "try",
    {"workload": "mlp"},
    {"on": ("cpu", "cpu/2"), "batch": (64, 128)},
    repeat=3,
    metrics=("step_ms",),
    deviations=("Published in another framework.",),
    scales={"small": {"batch": [64], "image": "64x48", "repeat": 3, "steps": 5}},
    published=(
        Published({"batch": 128}, {"step_ms": 5.0, "applause_percent": 7.0}, "A. Author, table 1", "K40", "about"),
        Published({"batch": 64, "on": "cpu"}, {"step_ms": 4.0}, "A. Author, table 2"),
    ),
)


def result(study: Study, missing: tuple[int, ...] = ()) -> StudyResult:
    """All points of a study as runs that exist only in name, but for the repetitions that are missing on cpu/2."""
    points = plan_points(study)
    absent = [p for p in points if p.configuration["on"] == "cpu/2" and p.repetition in missing]
    info = {p.identity: run_info(id=p.identity, created="", status="complete", point=p.record()) for p in points}
    runs = tuple((p, Run(Path(p.identity), info[p.identity])) for p in points if p not in absent)
    return StudyResult(study, runs, tuple((p, "no memory") for p in absent), len(runs))


def by_repetition(run: Run) -> Summary:
    """Steps of 2, 10 and 3 ms in the first, second and third repetition; twice that with batch 128."""
    step = {1: 2.0, 2: 10.0, 3: 3.0}[run.info.point["repetition"]]
    return summary(step * (2 if run.info.point["batch"] == 128 else 1))


def row(table: StudyTable, **values: object) -> StudyRow:
    (found,) = [one for one in table.rows if one.configuration == values]
    return found


def cell(found: StudyRow, figure: str) -> StudyCell:
    (one,) = [one for one in found.cells if one.figure == figure]
    return one


def test_a_cell_is_the_median_over_repetitions_with_its_range() -> None:
    table = study_table(result(STUDY), by_repetition)
    assert [one.configuration for one in table.rows] == [
        {"on": on, "batch": batch} for on in ("cpu", "cpu/2") for batch in (64, 128)
    ]
    step = cell(row(table, on="cpu", batch=64), "step_ms")
    # Three repetitions are too few for a 95 % interval of the median: it is their whole range.
    assert step.value == Value(3.0, "ms", "measured", 2.0, 10.0, few=3)
    assert step.n == 3
    assert cell(row(table, on="cpu", batch=128), "step_ms").value.value == 6.0
    assert table.fixed == {"seed": 0, "workload": "mlp"}
    assert table.axes == ("on", "batch")


def test_published_figures_stand_beside_ours_with_ratio_and_deviation() -> None:
    table = study_table(result(STUDY), by_repetition)
    assert table.deviations == ("Published in another framework.",)
    (k40,) = cell(row(table, on="cpu/2", batch=128), "step_ms").published
    assert k40.value == Value(5.0, "ms", "published")
    assert k40.ratio == pytest.approx(6.0 / 5.0)
    assert (k40.hardware, k40.origin, k40.note) == ("K40", "A. Author, table 1", "about")
    assert describe(k40.deviation) == "published on K40, ours on cpu/2"
    (table2,) = cell(row(table, on="cpu", batch=64), "step_ms").published
    assert (table2.ratio, describe(table2.deviation)) == (3.0 / 4.0, "")
    assert cell(row(table, on="cpu/2", batch=64), "step_ms").published == ()


def test_what_sonda_does_not_measure_is_shown_as_published_only() -> None:
    table = study_table(result(STUDY), by_repetition)
    assert [figure.key for figure in table.columns] == ["step_ms", "applause_percent"]
    found = cell(row(table, on="cpu", batch=128), "applause_percent")
    assert found.n == 0
    assert found.value == Value(None, "%", "measured", reason="not measured: Sonda does not measure applause %")
    assert found.published[0].value.value == 7.0
    assert found.published[0].ratio is None


def test_a_scale_is_a_deviation_and_leaves_rows_without_a_place() -> None:
    table = study_table(result(STUDY.at_scale("small")), by_repetition)
    (beside,) = cell(row(table, on="cpu", batch=64), "step_ms").published
    assert describe(beside.deviation) == "ours at scale small: image=64x48"
    assert in_words(table.notes) == ["1 of 2 published rows have no configuration at scale small"]
    assert table.scale == "small"
    assert [figure.key for figure in table.columns] == ["step_ms"], "what was published elsewhere takes no column"


def test_missing_repetitions_are_named() -> None:
    table = study_table(result(STUDY, missing=(2,)), by_repetition)
    found = row(table, on="cpu/2", batch=64)
    assert found.failures == ("repetition 2: no memory",)
    assert cell(found, "step_ms").n == len(found.runs) == 2
    assert cell(found, "step_ms").value.value == 2.5
    assert in_words(table.notes) == ["2 of 12 points have no run; start the study again to try them once more"]


def test_a_configuration_without_runs_has_a_reason() -> None:
    table = study_table(result(STUDY, missing=(1, 2, 3)), by_repetition)
    step = cell(row(table, on="cpu/2", batch=128), "step_ms")
    assert step.value.value is None
    assert step.value.reason == "not measured: repetition 1: no memory"
    assert step.published[0].ratio is None


def test_one_repetition_has_no_interval() -> None:
    table = study_table(result(STUDY, missing=(2, 3)), by_repetition)
    step = cell(row(table, on="cpu/2", batch=64), "step_ms").value
    assert step == Value(2.0, "ms", "measured", None, None, "one repetition has no interval")


def test_a_run_that_cannot_be_read_is_a_missing_repetition() -> None:
    def summarise(run: Run) -> Summary:
        if run.info.point["repetition"] == 2:
            raise SondaError("spans are damaged", "remove it")
        return by_repetition(run)

    found = row(study_table(result(STUDY), summarise), on="cpu", batch=64)
    assert found.failures == ("repetition 2: spans are damaged; remove it",)
    assert cell(found, "step_ms").n == 2


def test_rows_are_plain_values_with_units_and_sources() -> None:
    rows = word_findings(study_table(result(STUDY), by_repetition).to_rows())
    assert json.loads(json.dumps(rows)) == rows
    (found,) = [one for one in rows if one["configuration"] == {"on": "cpu", "batch": 64}]
    assert len(found["runs"]) == 3
    spread = found["figures"]["step_ms"].pop("spread")
    assert (spread["mean"], spread["minimum"], spread["maximum"]) == (5.0, 2.0, 10.0)
    # 2, 10 and 3: standard deviation sqrt(19), Student's t of two degrees of freedom 4.302653.
    assert spread["high"] - 5.0 == pytest.approx(5.0 - spread["low"]) == pytest.approx(4.302653 * (19 / 3) ** 0.5)
    assert found["figures"]["step_ms"] == {
        "value": 3.0, "unit": "ms", "source": "measured", "low": 2.0, "high": 10.0, "reason": "", "few": 3,
        "bounds": "", "n": 3, "values": [2.0, 10.0, 3.0],
        "published": [{
            "value": {"value": 4.0, "unit": "ms", "source": "published", "low": None, "high": None, "reason": "",
                      "few": 0, "bounds": ""},
            "hardware": "", "ratio": 0.75, "in_range": "", "deviation": "", "origin": "A. Author, table 2", "note": "",
        }],
    }  # fmt: skip


# A step of 10 ms: forward 4 ms, 6 GFLOP at half of its roof; backward 5 ms, 12 GFLOP at 0.8; optimizer 1 ms, unknown.
STEP = summary(
    10.0,
    (
        phase("forward", 4e6, 6e9, 100e6, 0.5),
        phase("backward", 5e6, 12e9, 250e6, 0.8),
        phase("optimizer", 1e6, None, None, None),
    ),
    peak=3.6e12,
)


@pytest.mark.parametrize(
    ("key", "value", "unit"),
    [
        ("step_ms", 10.0, "ms"),
        ("step_us", 10_000.0, "µs"),
        ("backward_ms", 5.0, "ms"),
        ("samples_per_second", 800.0, "1/s"),
        ("flops_GFLOP", 18.0, "GFLOP"),
        ("gflops", 1800.0, "GFLOP/s"),
        ("mflops", 1.8e6, "MFLOP/s"),
        ("bandwidth_GBps", 900.0, "GB/s"),
        ("intensity", 2.0, "FLOP/B"),
        ("efficiency_percent", 50.0, "%"),
        ("roof_percent", 100 * (0.5 * 4 + 0.8 * 5) / 9, "%"),
        ("peak_memory_MB", 250.0, "MB"),
    ],
)
def test_figures_are_read_off_a_summary(key: str, value: float, unit: str) -> None:
    found = parse_figure(key).value_of(STEP)
    assert found.value == pytest.approx(value)
    assert (found.unit, found.reason) == (unit, "")


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("tokens_per_second", "it has no tokens"),
        ("decode_ms", "its steps have no decode"),
        ("applause", "Sonda does not measure applause"),
    ],
)
def test_what_a_summary_lacks_has_a_reason(key: str, reason: str) -> None:
    found = parse_figure(key).value_of(STEP)
    assert (found.value, found.reason) == (None, reason)


def test_without_counts_or_ceilings_the_reason_is_theirs() -> None:
    bare = summary(10.0, (phase("forward", 4e6, None, None, None),))
    assert parse_figure("gflops").value_of(bare).reason == "no formula"
    assert parse_figure("roof_percent").value_of(bare).reason == "no ceilings"
    assert parse_figure("efficiency_percent").value_of(bare).reason == "ceilings were not measured"
    assert parse_figure("peak_memory_MB").value_of(bare).reason == "memory was not counted"
