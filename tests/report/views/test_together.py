"""Several runs on a page: each against the first, what is not significant grey and said, what has no ratio too."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from builders import trained
from command_line import run_command
from plain_runs import target_of
from simulated_examples import CLOCKED, nested_run
from sonda.analysis.comparison.runs import compare
from sonda.analysis.run_summary import summarise
from sonda.record.run import Run, write_run
from sonda.report.page import page_text
from sonda.report.section import Section, render_section
from sonda.report.views.compare.baseline import (
    BaselineComparison,
    grey_insignificant,
    layers_against,
    phases_against,
    verdict_words,
)
from sonda.report.views.compare.section import comparison_panels, side_by_side_panels
from sonda.report.views.compare.tables import layers_table, step_and_phases_table
from sonda.report.views.steps.figure_data import phases_table
from sonda.report.views.steps.tables import column_names, side_by_side_table

NOISE = (0.99, 1.01, 1.0, 0.98, 1.02, 1.0, 1.01, 0.99)
"""Steps that vary by a percent or two around 120 ms."""
NAMES = ["first", "alike", "slow"]


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    """Alike has the steps of the first in another order; slow takes exactly twice as long."""
    return [trained(NOISE, id="a1"), trained(NOISE[::-1], id="b2"), trained([2 * one for one in NOISE], id="c3")]


@pytest.fixture(scope="module")
def others(runs: list[Run]) -> list[BaselineComparison]:
    return [BaselineComparison(NAMES[at], compare(runs[:1], [runs[at]]), columns=(at,)) for at in (1, 2)]


def test_the_sentence_judges_every_run_against_the_first(others: list[BaselineComparison]) -> None:
    assert verdict_words("first", others) == "Against first per step: alike: not significant, slow is 2.00x slower."
    assert verdict_words("first", [BaselineComparison("sim", None, "cycles and times have no ratio")]) == ""


def test_step_phases_and_layers_have_a_column_for_each_run(others: list[BaselineComparison]) -> None:
    phases = phases_against("first", others)
    assert phases is not None
    assert [column.name for column in phases.columns] == ["", "first ms", "alike", "slow"]
    by_name = {row[0].text: row for row in phases.rows}
    # By the builder a step is 120 ms: data 5, forward 40, backward 60, optimizer 10.
    assert by_name["step"][1].text.startswith("120") and by_name["backward"][1].text.startswith("60")
    assert {(row[2].text, row[2].tone) for row in phases.rows} == {("not significant", "quiet")}
    assert {(row[3].text, row[3].tone) for row in phases.rows} == {("2.00x slower", "bad")}
    assert "95 % interval" in by_name["step"][3].hint
    layers = layers_against("first", others)
    assert layers is not None
    assert [row[0].text for row in layers.rows] == ["(Net)", "conv", "norm"], "most time first: all, 60 ms, 30 ms"


def test_times_that_do_not_differ_are_grey_in_the_table_of_all_runs(
    runs: list[Run], others: list[BaselineComparison]
) -> None:
    table = grey_insignificant(side_by_side_table([summarise(run) for run in runs], NAMES), others)
    step = next(row for row in table.rows if row[0].text == "step")
    assert (step[2].tone, step[3].tone) == ("quiet", "")
    assert step[2].hint.endswith("not significant against the first") and "measured" in step[2].hint
    assert step[1].tone != "quiet", "the first is not held against itself"


def test_numbers_of_a_comparison_that_say_nothing_are_grey(runs: list[Run]) -> None:
    same = compare(runs[:1], runs[1:2]).parts[0]
    slower = compare(runs[:1], runs[2:]).parts[0]
    for part, tones in ((same, {"quiet"}), (slower, {"", "bad"})):
        for table in (step_and_phases_table(part), layers_table(part.layers, "layer")):
            judged = [cell for row in table.rows for cell in row[3:]]
            assert {cell.tone for cell in judged} == tones


def beside(*given: Any) -> Section:
    return render_section("Side by side", "together", side_by_side_panels(*given))


def test_the_section_says_all_of_it(runs: list[Run]) -> None:
    section = beside([summarise(run) for run in runs], NAMES, runs)
    assert "alike: not significant, slow is 2.00x slower" in section.html
    for title in ("All runs", "Step and phases against first", "Layers against first"):
        assert re.search(f"<h3[^>]*>{title}</h3>", section.html), title
    assert 'class="number quiet"' in section.html
    assert 'id="bars"' in section.html


def test_behind_the_bars_of_all_runs_there_is_a_table(runs: list[Run]) -> None:
    """By the builder a step is 120 ms: backward takes 60, and slow exactly twice as long."""
    table = phases_table([summarise(run) for run in runs], NAMES)
    assert [column.name for column in table.columns] == ["phase", "first, ms", "alike, ms", "slow, ms"]
    backward = next(row for row in table.rows if row[0].text == "backward")
    assert float(backward[1].text) == pytest.approx(60) and float(backward[3].text) == pytest.approx(120)
    assert ", measured (" in backward[3].hint
    html = beside([summarise(run) for run in runs], NAMES, runs).html
    assert 'id="bars"' in html and 'aria-label="phases of all runs"' in html


def test_a_comparison_of_two_is_not_said_twice(runs: list[Run]) -> None:
    compared = compare(runs[:1], runs[1:2])
    two = beside([summarise(run) for run in runs[:2]], NAMES[:2], runs[:2], compared)
    assert "Layers against first" not in two.html
    assert (
        "What is not significant is grey."
        in render_section("Comparison", "comparison", comparison_panels(compared)).html
    )


def test_a_run_that_cannot_be_compared_says_why(runs: list[Run], tmp_path: Path) -> None:
    several = [*runs[:2], nested_run(CLOCKED, tmp_path)]
    section = beside([summarise(run) for run in several], [*NAMES[:2], "sim"], several)
    assert "sim cannot be compared: abcd1234abcd is simulated, others are measured" in section.html
    assert "alike: not significant" in section.html


def test_so_does_the_only_other_run(runs: list[Run], tmp_path: Path) -> None:
    """As a page of two runs is made whose comparison failed."""
    two = [runs[0], nested_run(CLOCKED, tmp_path)]
    text = page_text([summarise(run) for run in two], two, None, ["first", "sim"])
    assert "cannot be compared: abcd1234abcd is simulated, others are measured" in text
    assert "does not differ significantly" not in text


def test_what_differs_is_looked_up_once(runs: list[Run]) -> None:
    one = BaselineComparison("slow", compare(runs[:1], runs[2:]))
    assert one.rows is one.rows


def test_runs_of_one_name_are_judged_together_and_named_by_it() -> None:
    """Two processes each: main takes 120 ms and 121.2 ms, head exactly twice as long; within main nothing is judged."""
    main = [trained([one * by for one in NOISE], id=f"a{at}") for at, by in enumerate((1.0, 1.01))]
    head = [trained([2 * one * by for one in NOISE], id=f"b{at}") for at, by in enumerate((1.0, 1.01))]
    runs, asked = [*main, *head], ["main", "main", "head", "head"]
    summaries = [summarise(run) for run in runs]
    names = column_names(summaries, asked)
    assert names == ["main 1", "main 2", "head 1", "head 2"]
    section = beside(summaries, names, runs, None, asked)
    assert "Against main per step: head is 2.00x slower." in section.html
    assert re.search("<h3[^>]*>Step and phases against main</h3>", section.html) and "main 2:" not in section.html
    text = page_text(summaries, runs, compare(main, head), asked)
    assert "A: main (a0, a1) · B: head (b0, b1)" in text and "B is 2.00x slower than A" in text
    assert "head 1 (b0)" in text, "each run has its section, called by the name that was asked for"


def test_targets_tell_runs_apart_before_names_do(runs: list[Run]) -> None:
    summaries = [
        replace(summarise(run), target=target_of({"spec": spec})) for run, spec in zip(runs, "xyz", strict=True)
    ]
    assert column_names(summaries, ["main", "head", "other"]) == ["x", "y", "z"]
    alike = [replace(one, target=target_of({"spec": "cpu"})) for one in summaries]
    assert column_names(alike, ["main", "head", "other"]) == ["main", "head", "other"]
    assert column_names(alike, ["last"] * 3) == ["a1", "b2", "c3"], "one name for all tells none apart"


def test_two_runs_are_called_alike_all_over_a_page(runs: list[Run]) -> None:
    """By their targets, which head the columns, however they were asked for."""
    two = runs[::2]
    summaries = [replace(summarise(run), target=target_of({"spec": spec})) for run, spec in zip(two, "xy", strict=True)]
    text = page_text(summaries, two, compare(two[:1], two[1:]), ["main", "head"])
    named = f"{summaries[0].title}: A x against B y"
    assert f"<title>{named} · Sonda</title>" in text and f"<h1>{named}</h1>" in text
    assert "A: x (a1) · B: y (c3)" in text and "Against x per step: y is 2.00x slower." in text


def test_the_command_compares_runs_by_the_names_they_were_asked_for(tmp_path: Path) -> None:
    store = tmp_path / "store"
    for name, factor in (("main", 1.0), ("head", 2.0)):
        for number in (1, 2):
            made = trained([factor * one for one in NOISE], id=f"{name}{number}".encode().hex().ljust(12, "0")[:12])
            write_run(store, made.info, made.spans)
            assert run_command(tmp_path, "tag", made.id, name).returncode == 0
    done = run_command(tmp_path, "report", "main", "head", "-o", "page.html")
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert ": A main against B head</h1>" in text and "B is 2.00x slower than A" in text
    assert re.findall(r'<th scope="col"[^>]*>((?:main|head) \d)(?: \(fastest\))?</th>', text) == [
        "main 1",
        "main 2",
        "head 1",
        "head 2",
    ]
