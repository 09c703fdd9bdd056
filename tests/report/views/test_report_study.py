"""Studies in the terminal, from constructed documents."""

from __future__ import annotations

from typing import Any

from sonda.report.screen import render
from sonda.report.views.study.screen import plan_blocks, studies_blocks, study_blocks


def figure(value: float | None, reason: str = "", published: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    made = {"value": value, "unit": "ms", "source": "measured", "low": None, "high": None, "reason": reason, "n": 1}
    return made | ({"published": published} if published else {})


def printed(value: float, hardware: str) -> dict[str, Any]:
    return {"value": {"value": value, "unit": "ms", "source": "published"}, "hardware": hardware, "ratio": 2.5 / value,
            "in_range": "", "deviation": "", "origin": "a thesis", "note": ""}  # fmt: skip


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
    lines = render(study_blocks(STUDY, 100), 100, False).splitlines()
    assert lines[0] == "constructed at scale small"
    assert lines[2:4] == [
        "    A step takes 2.50 ms (batch 1).",
        "    Ours stand beside 1 of 1 published values: 0.0625 times as large, none within 10 %.",
    ]
    ours = lines.index("  on    batch   step ms")
    assert lines[ours + 1].split() == ["cpu", "1", "2.50"]
    assert lines[ours + 2].split() == ["cpu", "8", "–"]
    beside = lines.index("  step ms, ours beside what was published")
    assert lines[beside + 1].split() == ["on", "batch", "ours", "K40"]
    assert lines[beside + 2].split() == ["cpu", "1", "2.50", "40"]


def test_a_figure_that_nobody_measured_has_no_column_but_its_reason():
    lines = [line.strip() for line in render(study_blocks(STUDY, 100), 100, False).splitlines() if "energy" in line]
    assert lines == ["– energy J: no sensor"]


def test_failures_deviations_and_notes_are_said_literally():
    text = render(study_blocks(STUDY, 100), 100, False)
    assert "out of [red]memory" in text
    assert "other hardware" in text and "one note" in text


def test_the_plan_lists_every_run():
    plan = {
        "study": "constructed",
        "scale": "",
        "runs": [{"identity": "ab", "on": "cpu", "repetition": 1}, {"identity": "cd", "on": "cpu", "repetition": 2}],
    }
    lines = render(plan_blocks(plan), 80, False).splitlines()
    assert lines[0] == "constructed: 2 runs, each a process of its own"
    assert [line.split() for line in lines[1:]] == [["on", "cpu"], [], ["repetition"], ["1"], ["2"]]


def test_a_plan_with_variants_fits_and_cuts_nothing():
    sweep = {"train": True, "sweep_ways": True}
    curve = {"train": True, "batch": 4, "probe": "callgrind:256KiB+1MiB+4MiB", "with": "nobody"}
    runs = [
        {"identity": f"{number}", "variant": variant, **own, "workload": workload, **beside, "repetition": 1}
        for number, (variant, own, workload, beside) in enumerate(
            [
                ("ways swept", sweep, "resnet18", {"with": "stress-bandwidth"}),
                ("ways swept", sweep, "mlp", {"with": "stress-cache"}),
                ("miss curve", curve, "resnet18", {}),
            ]
        )
    ]
    plan = {"study": "corun", "scale": "", "runs": runs, "lacks": ["sweep_ways: partitions will be left out: no CAT"]}
    lines = [line.strip() for line in render(plan_blocks(plan), 70, False).splitlines()]
    assert "sweep_ways: partitions will be left out: no CAT" in lines
    assert "all: train true, repetition 1" in lines
    assert "ways swept: sweep_ways true" in lines
    assert "miss curve: batch 4, probe callgrind:256KiB+1MiB+4MiB" in lines
    assert [line.split()[-2:] for line in lines[-3:]] == [
        ["resnet18", "stress-bandwidth"], ["mlp", "stress-cache"], ["resnet18", "nobody"],
    ]  # fmt: skip
    assert not any("…" in line or len(line) > 70 for line in lines)


def test_the_studies_are_listed_with_their_questions():
    rows = [{"name": "one", "runs": 1200, "scales": ["small"], "question": "Why?"}]
    text = render(studies_blocks(rows), 80, False)
    assert "one" in text and "1,200" in text and "small" in text and "Why?" in text
