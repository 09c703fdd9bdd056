"""What the words of a page mean: said once, and only of what stands on it; layers that are numbers have their type."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

import report_examples as examples
from sonda.report.page import frame_page, page_text
from sonda.report.provenance import SIMULATED, STUDY, study_words
from sonda.report.section import section_of
from sonda.report.views.steps.layers import layer_icicle, measures_of
from sonda.report.views.study.tables import figure_name
from sonda.report.views.study.view import StudyView
from sonda.studies.file.loader import published_studies
from study_examples import constructed


def explained(page: str) -> list[str]:
    (words,) = re.findall(r'<dl class="words">(.*?)</dl>', page)
    return re.findall(r"<dt>(.*?)</dt>", words)


def test_a_page_of_several_runs_says_its_words_once() -> None:
    page = page_text([examples.training(), examples.inference()])
    found = explained(page)
    assert page.count("Words on this page") == 1 and len(set(found)) == len(found)
    assert {"step", "layer", "roof"} <= set(found) and found[-1] == "source"
    assert page.index("Words on this page") > page.rindex("</section>")


@pytest.mark.parametrize(
    ("name", "there", "absent"),
    [
        ("dlrm-accelerator", {"variant", "published", "configuration"}, {"idle", "Top-Down"}),
        ("resnet34-parallel", {"energy-delay product J·s", "J, W", "repetition", "±"}, {"cycle", "mapping"}),
        ("topdown-phases", {"phase", "slot"}, {"cycle", "mapping"}),
    ],
)
def test_a_study_explains_the_words_on_its_page(name: str, there: set[str], absent: set[str], tmp_path: Path) -> None:
    found = explained(frame_page("study", [section_of(StudyView(constructed(name, tmp_path)))]))
    assert there <= set(found) and not absent & set(found) and found[-1] == "source"


def test_words_are_found_in_what_is_read_and_as_words() -> None:
    found = [word for word, _ in study_words("Two configurations, 3 MFLOP/s, single-steps, layered", [], False)]
    assert found == ["configuration", "FLOP", "source"]
    assert "cycle" in SIMULATED and "cycle" not in STUDY
    assert [word for word, _ in study_words("cycles", [], simulated=True)] == ["cycle", "source"]
    assert [word for word, _ in study_words("cycles", [], simulated=False)] == ["source"]


def test_a_layer_is_shown_with_its_type() -> None:
    made = [("", "Sequential"), ("0", "Linear"), ("1", "ReLU"), ("head", "Linear"), ("head.10", "Linear")]
    rows = tuple(
        examples.layer(path, name, 1e6, 1e6, 1e6, 1e6, 1e6, 1e7, leaf=path not in ("", "head")) for path, name in made
    )
    part = replace(examples.training_part(), layers=rows)
    figure = layer_icicle(rows, measures_of(part))
    assert figure is not None
    labels = [slab.label for slab in figure.slabs if slab.label != "in no layer"]
    assert labels == ["Sequential", "0 Linear", "1 ReLU", "head Linear", "10 Linear"]


RAW = re.compile(r"_|@|(?<![A-Za-z])(edp|ipc|mpki|cpu|dram|loadgen|speedup|amdahl|theory)(?![A-Za-z])")


@pytest.mark.parametrize("name", published_studies())
def test_figures_of_a_study_are_called_by_words_and_units_and_no_two_alike(name: str, tmp_path: Path) -> None:
    study = constructed(name, tmp_path, None)
    names = [figure_name(column) for column in study["columns"]]
    assert not [one for one in names if RAW.search(one)]
    assert len(set(names)) == len(names)
    for column, called in zip(study["columns"], names, strict=True):
        assert str(column["unit"]) in called.replace("samples/s", "samples/s 1/s"), f"{called} lacks {column['unit']}"
