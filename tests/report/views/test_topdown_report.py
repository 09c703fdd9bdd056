"""Counters, Top-Down and changes over time as somebody sees them: screen, page and JSON of constructed runs."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from rich.cells import cell_len

import snapshot_files as snapshots
from browser import Browser, browser, needs_browser
from builders import stepped
from charts import boxes_of, heights, series_of
from counted_examples import SKYLAKE, ZEN4, counted_run, groups
from plain_runs import change_target
from sonda.analysis.change_points import Change
from sonda.analysis.counters.summary import Series, TopDown
from sonda.analysis.run_summary import summarise
from sonda.analysis.summary import Summary
from sonda.record.quantities import SOURCES
from sonda.report.blocks import Detail
from sonda.report.charts.chart import Boxes, Guide
from sonda.report.page import page_text
from sonda.report.views.counters.topdown import (
    choose_counted,
    topdown_icicle,
    topdown_map,
    topdown_over_steps,
    topdown_tables,
)
from sonda.report.views.steps.series import over_time_caption, over_time_figure
from sonda.report.views.steps.view import StepsView

__all__ = ["browser"]


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)


def skylake(**changes: Any) -> Summary:
    return summarise(counted_run(**{"table": "skylake-sp", "events": SKYLAKE, "steps": 24, **changes}))


def zen4(**changes: Any) -> Summary:
    return summarise(counted_run(**{"table": "zen4", "events": ZEN4, "steps": 24, **changes}))


def slower() -> Summary:
    """From step 31 on a step takes 40 % longer, in cycles and in time."""
    noise = np.random.default_rng(3).normal(1, 0.02, 64)

    def more(step: int) -> float:
        return float(noise[step]) * (1.0 if step < 30 else 1.4)

    return zen4(steps=64, scale=lambda step, phase: more(step), length=lambda step: 10 * more(step))


# ---- terminal ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "summary", "width"),
    [
        ("topdown_skylake_150", skylake(), 150),
        ("topdown_skylake_80", skylake(), 80),
        ("topdown_zen4_160", zen4(), 160),
        ("topdown_estimated_150", skylake(estimated=True, running=0.5), 150),
        ("topdown_slower_120", slower(), 120),
    ],
)
def test_screen(name: str, summary: Summary, width: int) -> None:
    text = StepsView(summary).text(width, rows=6, short="7f3a", color=False, detail=Detail.ALL)
    assert max(cell_len(line) for line in text.splitlines()) <= width
    snapshots.check(name, text)


def test_raw_events_stand_in_their_table_and_not_in_the_line_of_counters() -> None:
    text = StepsView(skylake()).text(150, color=False, detail=Detail.ALL)
    assert "uops issued any" not in text and "counter enabled" not in text
    assert "longest lat cache miss /1k" in text


def test_an_approximation_is_never_headed_top_down() -> None:
    events = {"cycles": 1000, "instructions": 1500, "ex_ret_ops": 2400, "de_dis_ops_dispatched": 2700,
              "de_dis_uop_queue_empty": 100}  # fmt: skip
    text = StepsView(summarise(counted_run("zen3", events))).text(150, color=False, detail=Detail.ALL)
    assert "approximate, % of slots" in text and "approximate, not Top-Down: AMD Zen 3" in text
    assert "Top-Down, %" not in text


def test_children_of_a_parent_below_its_threshold_are_quiet() -> None:
    found = skylake().parts[0].topdown
    assert found is not None
    level_two = topdown_tables(found)[1]
    tones = {column.name: level_two.rows[-1][index].tone for index, column in enumerate(level_two.columns)}
    assert tones["Core bound"] == "strong"
    assert tones["Branch mispredictions"] == tones["Heavy operations"] == "quiet"


def test_a_missing_category_says_which_event_is_missing() -> None:
    one = StepsView(skylake(taking_turns=groups("skylake-sp")[:1])).text(150, color=False, detail=Detail.ALL)
    assert "level 2 is missing: idq_uops_not_delivered_cycles_0 was not counted" in one
    assert "memory bound" not in one.lower() and "different steps" not in one
    two = StepsView(skylake(taking_turns=groups("skylake-sp")[:2])).text(150, color=False, detail=Detail.ALL)
    assert "Fetch latency" in two and "Memory bound" not in two


# ---- JSON -------------------------------------------------------------------------------------------------------


def test_the_document_holds_counters_top_down_and_changes() -> None:
    part = StepsView(slower()).document()["parts"][0]
    assert part["topdown"]["phases"]["forward"]["shares"]["backend_bound"]["value"] == pytest.approx(0.4)
    assert part["topdown"]["step"]["residual"]["value"] == pytest.approx(0.01)
    assert part["topdown"]["step"]["leading"] == ["backend_bound", "memory_bound"]
    assert part["counters"]["step"]["metrics"]["ipc:derived"]["value"] == pytest.approx(2)
    assert part["counters"]["stationary"] is True
    time = part["over_time"]["series"][0]
    assert time["name"] == "step time" and [one["step"] for one in time["changes"]] == [31]
    assert part["over_time"]["intervals"]["rates"]["cycles"]["unit"] == "cycle/s"


@pytest.mark.parametrize("summary", [skylake(), slower(), skylake(taking_turns=groups("skylake-sp")[:1])])
def test_the_document_is_json_and_every_number_has_unit_and_source(summary: Summary) -> None:
    document = StepsView(summary).document()
    assert json.loads(json.dumps(document, allow_nan=False)) == document

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            if "value" in value:
                assert value["unit"] and value["source"] in SOURCES
                assert value["value"] is not None or value["reason"]
            for inner in value.values():
                walk(inner)
        elif isinstance(value, list):
            for inner in value:
                walk(inner)

    walk(document)


def test_a_run_without_counters_has_only_its_series() -> None:
    part = StepsView(summarise(stepped([10.0] * 12))).document()["parts"][0]
    assert "topdown" not in part and "counters" not in part
    assert [one["name"] for one in part["over_time"]["series"]] == ["step time"]


# ---- figures ----------------------------------------------------------------------------------------------------


def test_the_icicle_is_as_wide_as_the_shares() -> None:
    found = zen4().parts[0].topdown
    assert found is not None
    places = _fields(found)
    backend, memory = places["Backend bound"], places["Memory bound"]
    assert backend[1] - backend[0] == pytest.approx(40) and memory[1] - memory[0] == pytest.approx(30)
    assert backend[0] <= memory[0] and memory[1] <= backend[1], "level 2 stands beneath what it is a part of"
    assert places["residual"][1] - places["residual"][0] == pytest.approx(1)
    assert max(right for _, right, _ in places.values()) == pytest.approx(100)


def _fields(found: TopDown) -> dict[str, tuple[float, float, int]]:
    """Left end, right end and level of each category, by its words."""
    figure = topdown_icicle(found)
    assert figure is not None
    boxes = [mark for mark in figure.marks if isinstance(mark, Boxes)]
    return {
        box.hints[0].partition(":")[0]: (box.places[0][0], box.places[0][1], round(sum(box.places[0][2:]) / 2))
        for box in boxes
    }


def test_a_negative_share_is_not_drawn() -> None:
    found = zen4(events={**ZEN4, "de_src_op_disp_all": 2040}).parts[0].topdown
    assert found is not None
    widths = {name: right - left for name, (left, right, _) in _fields(found).items()}
    assert widths.get("Bad speculation", 0.0) == 0
    assert all(width >= 0 for width in widths.values())


def test_stacks_over_steps_leave_gaps_where_nothing_was_counted() -> None:
    turns = groups("skylake-sp")
    found = skylake(steps=10, taking_turns=[*turns[1:], turns[0]]).parts[0].topdown
    assert found is not None
    figure = topdown_over_steps(found)
    assert figure is not None
    backend = boxes_of(figure)["Backend bound"]
    assert heights(backend) == [pytest.approx(25), pytest.approx(25)], "nothing stands where nothing was counted"
    assert [(left + right) / 2 for left, right, _, _ in backend.places] == [2.5, 6.5]
    assert [(strip.left, strip.right) for strip in figure.strips] == [(0.5, 4.5), (4.5, 8.5), (8.5, 10.5)]


def test_the_map_has_a_row_for_every_layer_and_a_column_for_every_category() -> None:
    part = zen4().parts[0]
    assert part.topdown is not None
    figure = topdown_map(part.topdown, choose_counted(part, 50))
    assert figure is not None
    assert sorted(figure.fields[0].y.names) == ["(Net)", "conv"]
    column = figure.x.names.index("Memory bound")
    cells = [hint for mark in figure.marks if isinstance(mark, Boxes)
             for place, hint in zip(mark.places, mark.hints, strict=True)
             if round(sum(place[:2]) / 2) == column]  # fmt: skip
    assert len(cells) == 2 and all("Memory bound: 30.0 % of slots" in hint for hint in cells)


def test_changes_are_marked_in_their_panel_with_the_phases_beneath() -> None:
    part = slower().parts[0]
    figure = over_time_figure(part)
    assert figure is not None
    first, last = figure.fields[0], figure.fields[-1]
    assert first.title.startswith("step time") and last.title.startswith("phases")
    assert [mark.at for mark in first.marks if isinstance(mark, Guide)] == [30.5]
    assert "forward" in boxes_of(figure)


@pytest.mark.parametrize(
    ("source", "changed", "phases", "said"),
    [
        ("counted", False, (), ""),
        ("counted", True, ("forward",), "Dashed lines are changes of level. Beneath are the phases of each step."),
        ("estimated", False, ("forward",), "Dotted curves are estimated. Beneath are the phases of each step."),
    ],
)
def test_the_caption_over_time_tells_of_what_is_drawn(
    source: str, changed: bool, phases: tuple[str, ...], said: str
) -> None:
    changes = (Change(1, 2, 1.0, 2.0),) if changed else ()
    one = Series("cycles", "cycle", source, (1, 2), (1.0, 2.0), changes)
    assert over_time_caption([one], dict.fromkeys(phases), "of each step") == said
    many = over_time_caption([*(replace(one, changes=()) for _ in range(7)), one], {}, "of each step")
    assert many.endswith("6 of 8 quantities are drawn, those that change before others.")
    assert ("Dashed" in many) == changed


def test_long_runs_are_drawn_as_means_and_stay_small() -> None:
    part = summarise(stepped([10.0 + (at % 7) * 0.01 for at in range(9000)])).parts[0]
    figure = over_time_figure(part)
    assert figure is not None
    assert len(figure.strips) == 750 and all(len(curve.points) <= 750 for curve in series_of(figure))
    assert "means of 12 neighbours" in figure.x.title


def test_names_from_outside_cannot_act_in_figures() -> None:
    run = counted_run("zen4", ZEN4, 16)
    definition = msgspec.to_builtins(run.info.target.topdown)
    first, *others = definition["categories"]
    categories = [{**first, "title": "<img src=x onerror=alert(1)>"}, *others]
    script = "</script><script>alert(2)</script>"
    change_target(run, topdown={**definition, "name": script, "categories": categories})
    text = page_text([summarise(run)])
    assert "<img src=x" not in text and "<script>alert(2)" not in text


@needs_browser
def test_a_browser_draws_every_figure(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(page_text([slower()]), encoding="utf-8")
    browser.open(page)
    drawn = browser.run("[...document.querySelectorAll('.figure')].map((figure) => figure.id)")
    assert {f"run0p0{place}" for place in ("time", "levels", "slots", "map")} <= set(drawn)
    assert browser.messages == []


def test_no_number_on_the_screen_is_nan() -> None:
    for summary in (skylake(), zen4(), slower()):
        assert "nan" not in StepsView(summary).text(150, color=False, detail=Detail.ALL).lower().replace(
            "nanosecond", ""
        )
    assert math.isfinite(slower().parts[0].over_time.intervals.length)  # type: ignore[union-attr]
