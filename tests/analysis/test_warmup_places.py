"""Warm-up in the middle of a part, where a function was compiled again: those steps are set apart, and no others."""

from __future__ import annotations

from dataclasses import replace

import pytest

import report_examples as examples
from builders import RunBuilder
from sonda.analysis.run_summary import summarise
from sonda.analysis.summary import PartSummary, Summary
from sonda.report import figures
from sonda.report.charts.chart import Shade
from sonda.report.views.steps.figure_data import steps_table
from sonda.report.views.steps.view import StepsView

STEPS = [("warmup", 300), *[("timed", 20)] * 5, ("warmup", 200), ("warmup", 210), *[("timed", 20)] * 4]
"""Pass and ms: the first is compiled, and a last batch of another size in the middle."""
APART = {0, 6, 7}


@pytest.fixture
def summary() -> Summary:
    builder = RunBuilder()
    train = builder.part("train")
    for pass_, lasted in STEPS:
        builder.step(train, lasted, {"fused": lasted}, pass_=pass_)
    return summarise(builder.run())


@pytest.fixture
def part(summary: Summary) -> PartSummary:
    return summary.parts[0]


def test_steps_that_count_are_those_that_were_not_set_apart(part: PartSummary) -> None:
    assert part.set_apart == APART and (part.steps, part.warmup) == (9, 3)
    assert part.timed == (20e6,) * 9
    assert part.step.value == 20e6


def test_table_and_picture_mark_them_where_they_are(part: PartSummary) -> None:
    said = [row[-1].text for row in steps_table(part).rows]
    assert [at for at, word in enumerate(said) if word == "warm-up"] == sorted(APART)
    figure = figures.phases_over_steps(part)
    assert figure is not None
    # Steps are numbered from 1, and each is as wide as 1.
    shades = [mark for mark in figure.marks if isinstance(mark, Shade)]
    assert [(one.first, one.last) for one in shades] == [(0.5, 1.5), (6.5, 8.5)]
    # The word stands in the first of them.
    assert [one.text for one in shades] == ["warm-up", ""]


def test_the_document_names_them(summary: Summary) -> None:
    told = StepsView(summary).document()["parts"][0]
    assert (told["warmup"], told["warmup_steps"]) == (3, sorted(APART))


def test_a_part_that_says_nothing_of_places_has_them_first() -> None:
    made = examples.training_part(steps=4, warmup=2)
    assert made.set_apart == {0, 1} and made.timed == made.durations[2:]
    assert replace(made, apart=(1,)).set_apart == {1}
