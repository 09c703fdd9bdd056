"""The page of a study: scaling curve, accuracy with its spread, energy as bars, and the tables of the terminal."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from builders import stepped
from charts import boxes_of, charts_of, lengths, series_of, upright
from sonda.report.blocks import Detail
from sonda.report.charts.chart import Area, Points
from sonda.report.page import write_view
from sonda.report.section import section_of
from sonda.report.views.study.figures import accuracy_caption, accuracy_figure, energy_figure, scaling_figure
from sonda.report.views.study.operations import operations_table
from sonda.report.views.study.tables import row_names, unmeasured_figures
from sonda.report.views.study.view import StudyView
from sonda.studies.results.recordings import load_recorded, provenance


def figure(value: float | None, source: str = "measured", unit: str = "J", **more: Any) -> dict[str, Any]:
    made = {"value": value, "unit": unit, "source": source, "low": None, "high": None, "reason": "no sensor", "n": 2}
    return made | more


def point(epoch: int, low: float, mean: float, high: float, n: int = 3) -> dict[str, Any]:
    return {"epoch": epoch, "passed": 10.0 * epoch, "n": n,
            "accuracy": {"mean": mean, "low": None, "high": None, "minimum": low, "maximum": high}}  # fmt: skip


def row(variant: str, energy: dict[str, Any], relative: dict[str, Any], curve: list[dict[str, Any]]) -> dict[str, Any]:
    return {"configuration": {"variant": variant, "batch": 8}, "failures": [], "curve": curve, "disturbed": 0,
            "figures": {"energy_J": energy, "relative_edp": relative}}  # fmt: skip


SPEED = {"unit": "1", "source": "derived", "reason": ""}
STUDY: dict[str, Any] = {
    "study": "constructed",
    "question": "Does <it> pay?",
    "scale": "",
    "axes": ["variant", "batch"],
    "base": "one",
    "columns": [
        {"figure": "energy_J", "unit": "J", "of": "", "topic": "Energy"},
        {"figure": "relative_edp", "unit": "", "of": "", "topic": "Against the base"},
    ],
    "rows": [
        row("one", figure(100.0, low=90.0, high=120.0), figure(1.0, "derived", ""), [point(1, 0.2, 0.3, 0.5)]),
        row("two & <more>", figure(80.0, "estimated", low=48.0, high=112.0), figure(0.5, "estimated", ""),
            [point(1, 0.1, 0.2, 0.4), point(2, 0.4, 0.5, 0.6)]),
        row("none", figure(None), figure(None, "derived", ""), []),
    ],
    "scaling": {
        "base": "one", "devices": 1, "serial": 0.1, "bound": [[1, 1.0], [2, 1 / 0.55]],
        "points": [
            {"name": "one", "devices": 1, "whole": {**SPEED, "value": 1.0, "low": None, "high": None},
             "training": {**SPEED, "value": 1.0, "low": None, "high": None}},
            {"name": "two", "devices": 2, "whole": {**SPEED, "value": 1.79, "low": 1.7, "high": 1.9},
             "training": {**SPEED, "value": None, "low": None, "high": None}},
        ],
    },
    "deviations": ["other hardware"],
    "notes": ["one note"],
}  # fmt: skip


def test_the_scaling_curve_has_the_ideal_the_bound_and_both_speed_ups_of_each() -> None:
    drawn = scaling_figure(STUDY)
    assert drawn is not None
    ideal, bound, one, two = series_of(drawn)
    assert ideal.points == ((1, 1.0), (2, 2.0))
    assert upright(bound) == [1.0, pytest.approx(1.818, abs=1e-3)]
    assert "10 % serial" in bound.name
    assert (one.name, upright(one)) == ("one", [1.0, 1.0])
    (whole, training) = [point[0] for point in one.points if point is not None]
    assert round(whole) == round(training) == 1 and whole < training, "whole beside training part"
    assert one.symbols == ("circle", "circle-open")
    assert (two.name, upright(two)) == ("two", [1.79]), "what is missing is not drawn as 0"
    assert two.intervals == ((1.7, 1.9),) and two.upright
    assert "1.79, derived" in two.hints[0] and "1.70 to 1.90" in two.hints[0]
    assert one.intervals == (None, None), "no bar without an interval"
    assert scaling_figure({**STUDY, "scaling": None}) is None


def test_configurations_of_as_many_devices_stand_beside_each_other() -> None:
    point = STUDY["scaling"]["points"][1]
    alike = [{**point, "name": name, "training": point["whole"]} for name in ("two", "half batch", "all shared")]
    drawn = scaling_figure({**STUDY, "scaling": {**STUDY["scaling"], "points": alike}})
    assert drawn is not None
    places = [point[0] for series in series_of(drawn)[2:] for point in series.points if point is not None]
    assert len(set(places)) == 6 and places == sorted(places) and all(round(x) == 2 for x in places)


def test_accuracy_is_a_line_with_its_least_and_most_shaded() -> None:
    drawn = accuracy_figure(STUDY)
    assert drawn is not None
    band, line = drawn.marks[2:]
    assert isinstance(band, Area) and isinstance(line, Points)
    assert (band.across, band.low, band.high) == ((1, 2), (10.0, 40.0), (40.0, 60.0))
    assert line.points == ((1, 20.0), (2, 50.0))
    assert line.name == "two & <more>"
    alone = {**STUDY, "rows": [row("one", figure(1.0), figure(1.0), [point(1, 0.3, 0.3, 0.3, n=1)])]}
    single = accuracy_figure(alone)
    assert single is not None and [type(mark) for mark in single.marks] == [Points], "one run has no spread"
    assert accuracy_figure({**STUDY, "rows": STUDY["rows"][2:]}) is None


def test_curves_that_lie_upon_each_other_are_told_apart_and_named() -> None:
    """0.3 and 0.301 of an axis that ends at 0.5 are less than a pixel apart; 0.2 is not."""
    curves = {"one": 0.3, "same, DDP": 0.301, "other": 0.2}
    rows = [row(name, figure(1.0), figure(1.0), [point(1, mean, mean, mean, n=1), point(2, 0.5, 0.5, 0.5, n=1)])
            for name, mean in curves.items()]  # fmt: skip
    drawn = accuracy_figure({**STUDY, "rows": rows})
    assert drawn is not None
    one, same, other = series_of(drawn)
    assert one.width > same.width and one.sizes > same.sizes
    assert (one.line, same.line, other.line) == ("solid", "dash", "solid")
    assert other.width == same.width
    assert '"one" and "same, DDP" lie upon each other' in accuracy_caption({**STUDY, "rows": rows})
    assert "other" not in accuracy_caption({**STUDY, "rows": rows}).replace("each other", "")
    assert "lie upon" not in accuracy_caption({**STUDY, "rows": rows[1:]})
    assert accuracy_caption({**STUDY, "rows": rows}).startswith("One run of each.")
    assert "least to most is shaded" in accuracy_caption(STUDY)


def test_curves_that_are_not_drawn_are_counted() -> None:
    rows = [row(f"c{at}", figure(1.0), figure(1.0), [point(1, at / 40, at / 40, at / 40, n=1)]) for at in range(1, 31)]
    assert "The first 24 of 30 configurations; the table has all." in accuracy_caption({**STUDY, "rows": rows})


def test_bars_of_estimates_are_hatched_and_rows_without_energy_have_none() -> None:
    drawn = energy_figure(STUDY, ["energy_J"], "J")
    assert drawn is not None
    (bars,), (lines,) = boxes_of(drawn).values(), series_of(drawn)
    assert lengths(bars) == {0: 100.0, 1: 80.0}, "lying, as long names have room beside them"
    assert bars.hatched == (False, True)
    assert lines.intervals == ((90.0, 120.0), (48.0, 112.0))
    assert drawn.fields[0].y.names == ("one", "two & <more>")
    assert energy_figure({**STUDY, "rows": STUDY["rows"][2:]}, ["energy_J"], "J") is None


def test_rows_are_named_by_what_differs() -> None:
    assert row_names(STUDY) == ["one", "two & <more>", "none"]
    assert row_names({**STUDY, "base": "", "rows": STUDY["rows"][:1]}) == ["one, batch 8"]


def test_the_page_is_whole_and_escaped(tmp_path: Path) -> None:
    path = write_view(tmp_path / "study.html", StudyView(STUDY))
    text = path.read_text()
    places = re.findall(r'<div class="figure" id="(.*?)"', text)
    assert places == ["studydots0", "studyscaling", "studyaccuracy", "studyenergy", "studyrelative"]
    assert "two & <more>" not in text and "two &amp; &lt;more&gt;" in text
    assert "Does &lt;it&gt; pay?" in text
    assert "Content-Security-Policy" in text


def test_a_study_is_a_view_like_every_kind_of_run() -> None:
    view = StudyView(STUDY, reference="mine.toml")
    assert view.document() == {"schema": 1, "kind": "study", **STUDY}
    assert view.text(100, color=False, detail=Detail.ALL).endswith(
        "Page: sonda study mine.toml --show --page study.html"
    )
    assert "Does &lt;it&gt; pay?" in view.fragment()


def test_a_study_without_trainings_has_tables_only() -> None:
    plain = {**STUDY, "scaling": None, "base": "", "axes": ["batch"],
             "columns": [{"figure": "step_ms", "unit": "ms", "of": ""}],
             "rows": [{"configuration": {"batch": 8}, "failures": ["repetition 1: out of memory"],
                       "figures": {"step_ms": figure(2.5, unit="ms")}}]}  # fmt: skip
    section = section_of(StudyView(plain))
    assert charts_of(StudyView(plain).full()) == {}
    assert "2.50" in section.html
    assert "out of memory" in section.html


def test_where_numbers_come_from_says_the_framework_that_ran_and_simulated_where_nothing_was_measured() -> None:
    versions = {"python": "3.11", "sonda": "0.1", "torch": "2.13", "tensorflow": "2.21", "keras": "3.15", "jax": "0.10"}
    about = provenance([stepped([1.0], workload={"name": "cnn", "framework": "tensorflow"}, versions=versions)])
    assert about["versions"] == {"keras": "3.15", "python": "3.11", "sonda": "0.1", "tensorflow": "2.21"}
    about["devices"] = ["a processor"]
    html = section_of(StudyView({**STUDY, "provenance": about})).html
    assert "Measured on a processor, " in html and "tensorflow 2.21" in html
    rows = [row("one", figure(1.0, "simulated"), figure(1.0, "derived", ""), [])]
    assert "Simulated on a processor, " in section_of(StudyView({**STUDY, "rows": rows, "provenance": about})).html


def test_reasons_name_few_variants_and_count_many() -> None:
    rows = [row(name, figure(None), figure(None), []) for name in ("a", "b, c", "d", "e", "f")]
    for one in rows[2:]:
        one["figures"]["energy_J"]["reason"] = "no runs"
    for one in rows[:2]:
        one["figures"]["energy_J"]["reason"] = "no device"
    one_of_them = next(
        reason for reason, names in unmeasured_figures({**STUDY, "rows": rows}).items() if "energy J" in names
    )
    assert one_of_them == "no device (a; b, c); no runs (d; e; f)"
    more = [*rows, row("g", figure(None, reason="no runs"), figure(None), [])]
    assert any(
        reason == "no device (a; b, c); no runs (4 variants)" for reason in unmeasured_figures({**STUDY, "rows": more})
    )


def test_operations_one_by_one_have_unit_and_source_and_all_digits() -> None:
    table = operations_table(load_recorded("six-operations-h200")["operations"])
    (time,) = [cell for column, cell in zip(table.columns, table.rows[0], strict=True) if column.name == "µs"]
    assert (time.text, time.order, time.unit, time.hint) == ("1.86", 1.856, "µs", "1.86 µs, measured")
    numbers = [cell for row in table.rows for column, cell in zip(table.columns, row, strict=True)
               if column.right and cell.order is not None]  # fmt: skip
    assert len(numbers) > 96 * 8 and all(cell.unit and ", " in cell.hint for cell in numbers)


def test_idle_is_explained_as_power_only_where_energy_was_measured() -> None:
    def words(key: str, unit: str) -> dict[str, str]:
        columns = [{"figure": key, "unit": unit, "of": ""}]
        rows = [
            {"configuration": {"batch": at}, "failures": [], "figures": {key: figure(2.5, unit=unit)}} for at in (1, 2)
        ]
        one = {**STUDY, "scaling": None, "base": "", "axes": ["batch"], "columns": columns, "rows": rows}
        return dict(section_of(StudyView({**one, "notes": ["idle"]})).words)

    assert "idle" not in words("idle_ms", "ms") and "power" in words("energy_J", "J")["idle"]
