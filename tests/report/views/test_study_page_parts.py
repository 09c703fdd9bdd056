"""Studies whose pictures would be too long are taken apart: every configuration is drawn, in pictures of a screen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from charts import boxes_of, charts_of, series_of
from sonda.report.views.study.answer import answer
from sonda.report.views.study.dot_plot import dots_of
from sonda.report.views.study.facets import split_study
from sonda.report.views.study.view import StudyView
from sonda.studies.file.loader import published_studies
from study_examples import constructed


def made(**axes: list[Any]) -> dict[str, Any]:
    rows: list[dict[str, Any]] = [{}]
    for name, values in axes.items():
        rows = [{**row, name: value} for row in rows for value in values]
    return {"axes": list(axes), "rows": [{"configuration": row} for row in rows]}


def rows_of(study: Any) -> int:
    return len(study["rows"])


def test_a_study_that_fits_stays_whole() -> None:
    study = made(op=["add", "mul"], size=[1, 2, 3])
    assert split_study(study, rows_of, most=6) == [("", study)]


def test_the_axis_that_makes_fewest_parts_is_taken() -> None:
    """12 rows in pictures of at most 6: two devices make two of 6, three sizes three of 4."""
    found = split_study(made(size=[1, 2, 3], on=["cpu", "gpu"], train=[True, False]), rows_of, most=6)
    assert [(name, rows_of(part), part["axes"]) for name, part in found] == [
        ("cpu", 6, ["size", "train"]), ("gpu", 6, ["size", "train"]),
    ]  # fmt: skip
    assert [name for name, _ in split_study(made(size=[1, 2, 3], train=[True, False]), rows_of, most=3)] == [
        "train true", "train false",
    ]  # fmt: skip


def test_parts_that_are_still_too_long_are_taken_apart_again_and_nothing_is_lost() -> None:
    """Sizes come nearest to three rows, with four; each of these has two devices with two."""
    study = made(on=["cpu", "gpu"], op=["add", "mul"], size=[1, 2, 3])
    found = split_study(study, rows_of, most=3)
    assert [name for name, _ in found] == [f"size {size}, {on}" for size in (1, 2, 3) for on in ("cpu", "gpu")]
    kept = [row["configuration"] for _, part in found for row in part["rows"]]
    assert len(kept) == 12 and all(row["configuration"] in kept for row in study["rows"])


@pytest.mark.parametrize("name", sorted(published_studies()))
def test_every_configuration_of_a_whole_study_is_in_its_pictures(name: str, tmp_path: Path) -> None:
    study = constructed(name, tmp_path, None)
    figures = charts_of(StudyView(study).full())
    for number, key in enumerate(answer(study).figures):
        drawn = [figure for place, figure in figures.items() if place.startswith(f"dots{number}")]
        if not drawn:
            assert name == "corun", "its matrix shows them"
            continue
        ours = sum(len(series.points) for figure in drawn for series in series_of(figure) if not series.line)
        fields = sum(len(boxes.places) for figure in drawn for boxes in boxes_of(figure).values())
        assert ours + fields == len(dots_of(study, key))
        assert all(len(figure.fields[0].y.names) <= 40 for figure in drawn)


@pytest.mark.parametrize("name", ["jax-optimisations", "pytorch-optimisations", "tensorflow-optimisations"])
def test_bars_of_all_configurations_are_drawn(name: str, tmp_path: Path) -> None:
    study = constructed(name, tmp_path, None)
    drawn = [figure for place, figure in charts_of(StudyView(study).full()).items() if place.startswith("processor")]
    assert len(study["rows"]) > 40
    assert sum(len(figure.fields[0].y.names) for figure in drawn) == len(study["rows"])
