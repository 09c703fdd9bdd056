"""The page of a study: scaling curve, accuracy with its spread, energy as bars, and the tables of the terminal."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from sonda.report.study_figures import accuracy_figure, energy_figure, scaling_figure
from sonda.report.study_page import study_section, write_study_page
from sonda.report.study_tables import row_names


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


def test_the_scaling_curve_has_the_ideal_the_bound_and_both_speed_ups() -> None:
    drawn = scaling_figure(STUDY)
    assert drawn is not None
    ideal, bound, whole, training = drawn["data"]
    assert (ideal["x"], ideal["y"]) == ([1, 2], [1.0, 2.0])
    assert bound["y"] == [1.0, pytest.approx(1.818, abs=1e-3)]
    assert "10 % serial" in bound["name"]
    assert (whole["x"], whole["y"]) == ([1, 2], [1.0, 1.79])
    assert whole["error_y"]["array"] == pytest.approx([0.0, 0.11])
    assert whole["error_y"]["arrayminus"] == pytest.approx([0.0, 0.09])
    assert training["x"] == [1], "what is missing is not drawn as 0"
    assert scaling_figure({**STUDY, "scaling": None}) is None


def test_accuracy_is_a_line_with_its_least_and_most_shaded() -> None:
    drawn = accuracy_figure(STUDY)
    assert drawn is not None
    band, line = drawn["data"][2:]
    assert (band["x"], band["y"]) == ([1, 2, 2, 1], pytest.approx([40.0, 60.0, 40.0, 10.0]))
    assert (line["x"], line["y"]) == ([1, 2], [20.0, 50.0])
    assert line["name"] == "two &amp; &lt;more&gt;"
    alone = {**STUDY, "rows": [row("one", figure(1.0), figure(1.0), [point(1, 0.3, 0.3, 0.3, n=1)])]}
    assert [one["mode"] for one in accuracy_figure(alone)["data"]] == ["lines+markers"]  # type: ignore[index]
    assert accuracy_figure({**STUDY, "rows": STUDY["rows"][2:]}) is None


def test_bars_of_estimates_are_hatched_and_rows_without_energy_have_none() -> None:
    drawn = energy_figure(STUDY, ["energy_J"], "J")
    assert drawn is not None
    (bars,) = drawn["data"]
    assert bars["y"] == [100.0, 80.0]
    assert bars["marker"]["pattern"]["shape"] == ["", "/"]
    assert bars["error_y"]["arrayminus"] == [10.0, 32.0]
    assert drawn["layout"]["xaxis"]["ticktext"] == ["one", "two &amp; &lt;more&gt;"]
    assert energy_figure({**STUDY, "rows": STUDY["rows"][2:]}, ["energy_J"], "J") is None


def test_rows_are_named_by_what_differs() -> None:
    assert row_names(STUDY) == ["one", "two & <more>", "none"]
    assert row_names({**STUDY, "base": "", "rows": STUDY["rows"][:1]}) == ["one, batch 8"]


def test_the_page_is_whole_and_escaped(tmp_path: Path) -> None:
    path = write_study_page(tmp_path / "study.html", STUDY)
    text = path.read_text()
    found = re.search(r'<script type="application/json" id="figures">(.*?)</script>', text, re.S)
    assert found is not None
    places = [one["place"] for one in json.loads(found[1])]
    assert places == ["studydots0", "studyscaling", "studyaccuracy", "studyenergy", "studyrelative"]
    assert all(f'id="{place}"' in text for place in places)
    assert "Does &lt;it&gt; pay?" in text
    assert "Content-Security-Policy" in text


def test_a_study_without_trainings_has_tables_only() -> None:
    plain = {**STUDY, "scaling": None, "base": "", "axes": ["batch"],
             "columns": [{"figure": "step_ms", "unit": "ms", "of": ""}],
             "rows": [{"configuration": {"batch": 8}, "failures": ["repetition 1: out of memory"],
                       "figures": {"step_ms": figure(2.5, unit="ms")}}]}  # fmt: skip
    section = study_section(plain)
    assert section.figures == ()
    assert "2.50" in section.html
    assert "out of memory" in section.html
