"""Studies in the terminal, from constructed documents."""

from __future__ import annotations

from typing import Any

from sonda.report.study import render_plan, render_studies, render_study


def figure(value: float | None, reason: str = "", published: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    made = {"value": value, "unit": "ms", "source": "measured", "low": None, "high": None, "reason": reason, "n": 1}
    return made | ({"published": published} if published else {})


def printed(value: float, hardware: str) -> dict[str, Any]:
    return {"value": {"value": value, "unit": "ms", "source": "published"}, "hardware": hardware}


STUDY = {
    "study": "constructed",
    "question": "Which is faster?",
    "scale": "small",
    "axes": ["on", "batch"],
    "columns": [{"figure": "step_ms", "unit": "ms"}, {"figure": "energy_J", "unit": "J"}],
    "rows": [
        {
            "configuration": {"on": "cpu", "batch": 1},
            "figures": {"step_ms": figure(2.5, published=[printed(40, "K40")]), "energy_J": figure(None, "no sensor")},
            "failures": [],
        },
        {
            "configuration": {"on": "cpu", "batch": 8},
            "figures": {"step_ms": figure(None, "failed"), "energy_J": figure(None, "no sensor")},
            "failures": ["on=cpu batch=8, repetition 1: out of [red]memory"],
        },
    ],
    "deviations": ["other hardware"],
    "notes": ["one note"],
}


def test_our_figures_come_first_and_published_ones_stand_beside_ours():
    lines = render_study(STUDY, 100, color=False).splitlines()
    assert lines[0] == "constructed at scale small"
    ours = lines.index("  on    batch   step ms")
    assert lines[ours + 1].split() == ["cpu", "1", "2.50"]
    assert lines[ours + 2].split() == ["cpu", "8", "–"]
    beside = lines.index("  step ms, ours beside what was published")
    assert lines[beside + 1].split() == ["on", "batch", "ours", "K40"]
    assert lines[beside + 2].split() == ["cpu", "1", "2.50", "40"]


def test_a_figure_that_nobody_measured_has_no_column_but_its_reason():
    lines = [line.strip() for line in render_study(STUDY, 100, color=False).splitlines() if "energy" in line]
    assert lines == ["– energy J: no sensor"]


def test_failures_deviations_and_notes_are_said_literally():
    text = render_study(STUDY, 100, color=False)
    assert "out of [red]memory" in text
    assert "other hardware" in text and "one note" in text


def test_the_plan_lists_every_run():
    plan = {
        "study": "constructed",
        "scale": "",
        "runs": [{"identity": "ab", "on": "cpu", "repetition": 1}, {"identity": "cd", "on": "cpu", "repetition": 2}],
    }
    lines = render_plan(plan, 80, color=False).splitlines()
    assert lines[0] == "constructed: 2 runs, each a process of its own"
    assert [line.split() for line in lines[1:]] == [["on", "repetition"], ["cpu", "1"], ["cpu", "2"]]


def test_the_studies_are_listed_with_their_questions():
    rows = [{"name": "one", "runs": 1200, "scales": ["small"], "question": "Why?"}]
    text = render_studies(rows, 80, color=False)
    assert "one" in text and "1,200" in text and "small" in text and "Why?" in text
