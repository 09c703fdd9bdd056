"""A glance at a run: what it says first, in how many lines, and what it leaves to -v."""

from __future__ import annotations

from dataclasses import replace

import pytest

import report_examples as examples
from sonda.analysis.doubts import EndedEarly, FewSteps, NoisySteps
from sonda.analysis.findings import Remark
from sonda.analysis.summary import Summary, Value
from sonda.analysis.trials import TrialsSummary, TriedRemedy
from sonda.report.blocks import Detail
from sonda.report.page import page_text
from sonda.report.screen import render
from sonda.report.views.compare.screen import side_by_side_glance
from sonda.report.views.steps.view import StepsView
from sonda.report.words import brief_doubts, describe


def glance(summary: Summary, width: int = 100, rows: int | None = None) -> list[str]:
    return StepsView(summary).text(width, rows, short="7f3a", color=False).splitlines()


def test_a_glance_is_verdict_remedies_bar_layers_doubts_and_where_to_look() -> None:
    lines = glance(examples.training())
    assert lines[0].startswith("ResNet-34, training, batch 16") and lines[2].startswith("  Compute-bound in the")
    assert lines[3].startswith("  Try: ")
    bar = next(
        number for number, line in enumerate(lines) if line.startswith("  training, 1.26 s a step, 12.7 samples/s")
    )
    assert lines[bar + 1].split("   ")[0] == "  █ data 0.7 %"
    assert all(line.startswith("  layer") for line in lines[bar + 2 : bar + 7])
    assert (
        lines[-2].startswith("  ! ")
        and lines[-1] == "  Run 7f3a · tables: sonda show 7f3a -v · page: sonda report 7f3a"
    )
    assert len(lines) <= 20


@pytest.mark.parametrize("rows", [0, 1, 5, 30])
def test_so_many_layers_are_listed(rows: int) -> None:
    assert sum(line.startswith("  layer") for line in glance(examples.training(), rows=rows)) == rows


def test_medians_that_do_not_add_up_leave_a_part_of_the_bar() -> None:
    summary = examples.training()
    part = summary.parts[0]
    step = replace(part.step, value=2 * (part.step.value or 0.0))
    phases = tuple(replace(row, cost=replace(row.cost, share=row.cost.share / 2)) for row in part.phases)
    text = "\n".join(glance(replace(summary, parts=(replace(part, step=step, phases=phases),))))
    assert "slow in some steps only 50 %" in text
    assert "slow in some steps" not in "\n".join(glance(summary))


def test_a_model_that_is_only_called_is_inference_at_every_level() -> None:
    doubt = FewSteps("test", 4, 20, True)
    summary = examples.inference()
    summary = replace(summary, parts=(replace(summary.parts[0], name="test"),), warnings=(doubt,))
    assert "inference, 3.20 ms a step" in "\n".join(glance(summary)) and "  ! only 4 steps, 20 would do" in glance(
        summary
    )
    tables = StepsView(summary).text(100, color=False, detail=Detail.TABLES)
    assert "! inference: only 4 steps after warm-up" in tables and "test" not in tables
    assert StepsView(summary).document()["warnings"] == [describe(doubt)], "documents keep the name of the part"


def test_doubts_are_brief_and_those_of_the_first_part_come_first() -> None:
    noisy = NoisySteps("train", Value(0.31, "1", "derived"), 0, False)
    other = Remark("other programs used 1.3 of 2 CPUs while this one wanted 2: stop them, or use fewer threads")
    found = brief_doubts([FewSteps("validate", 1, 20, False), noisy, other], "train")
    assert found == [
        "the step is known only to ±31 %", "other programs used 1.3 of 2 CPUs while this one wanted 2",
        "validation: only 1 step, 20 would do",
    ]  # fmt: skip


def test_a_page_and_a_comparison_name_the_part_of_a_doubt_that_is_not_of_the_first() -> None:
    summary = replace(examples.training(), warnings=(FewSteps("validate", 1, 20, False),))
    assert "validation: only 1 step, 20 would do" in page_text([summary])
    beside = render(side_by_side_glance([summary, examples.training()], ["a", "b"]), 120, False)
    assert "a: validation: only 1 step, 20 would do" in beside


def test_how_a_program_ended_is_said_once() -> None:
    ended = replace(examples.training(), status="incomplete", notes=(Remark("ended by SIGTERM"),), warnings=())
    assert "  ! ended by SIGTERM" in glance(ended)
    told = glance(replace(ended, warnings=(EndedEarly(143),)))
    assert "  ! the program ended early with exit code 143" in told and "SIGTERM" not in "\n".join(told)
    assert "SIGTERM" not in "\n".join(glance(replace(ended, status="complete")))


def test_tried_remedies_are_said_with_what_they_brought() -> None:
    faster = TriedRemedy("threads", 2, Value(1.63, "1", "measured", 1.6, 1.66), "within tolerance", 0.0, None)
    trials = TrialsSummary((faster,), (), "", 3, 2, 10, 30.0, "/run")
    assert "  Tried: 2 threads 1.63x (measured, ±2 %)" in glance(replace(examples.training(), trials=trials))
    refused = replace(trials, remedies=(), refused="no step was seen")
    assert "  No remedy was tried: no step was seen." in glance(replace(examples.training(), trials=refused))


def test_a_notebook_shows_the_glance_and_how_to_see_more() -> None:
    html = StepsView(examples.training()).fragment()
    assert "Compute-bound" in html and "tables: .show(1)" in html and "phase</th>" not in html
