"""What a study says first, what its intervals are called, and what stands beside published figures."""

from __future__ import annotations

from typing import Any

import pytest

from charts import across, boxes_of, lengths, series_of, upright
from sonda.report.palette import GREY
from sonda.report.views.study.answer import answer, published_words
from sonda.report.views.study.cells import FEWER, axis_cell, interval_kind, interval_words, study_cell
from sonda.report.views.study.dot_plot import dots_figure, dots_of
from sonda.report.views.study.published import pairs, published_figure, published_table
from sonda.report.views.study.stacked_bars import stack_figure, stacks
from sonda.report.views.study.tables import ours_table
from sonda.report.views.study.tradeoff import trades


def figure(value: float | None, n: int = 1, low: float | None = None, high: float | None = None, unit: str = "",
           source: str = "measured", **more: Any) -> dict[str, Any]:  # fmt: skip
    values = [] if value is None else [value] * n
    return {"value": value, "unit": unit, "source": source, "low": low, "high": high, "n": n, "values": values,
            "reason": "" if value is not None else "not measured: no sensor", **more}  # fmt: skip


def study(columns: dict[str, str], rows: list[tuple[dict[str, Any], dict[str, Any]]], **more: Any) -> dict[str, Any]:
    """Columns are keys with units, rows configurations with figures."""
    return {
        "study": "constructed", "question": "Why?", "scale": "", "axes": list(rows[0][0]), "base": "", "compare": [],
        "compared": [], "deviations": [], "notes": [],
        "columns": [{"figure": key, "unit": unit, "of": key.partition("@")[2]} for key, unit in columns.items()],
        "rows": [{"configuration": place, "figures": figures, "failures": [], "runs": []} for place, figures in rows],
        **more,
    }  # fmt: skip


def printed(value: float | None, ratio: float | None, low: float | None = None, high: float | None = None,
            hardware: str = "K40") -> dict[str, Any]:  # fmt: skip
    shown = {"value": value, "unit": "", "source": "published", "low": low, "high": high, "reason": ""}
    return {"value": shown, "hardware": hardware, "ratio": ratio if value is not None else None,
            "in_range": "" if value is not None else "inside", "deviation": "another card", "origin": "",
            "note": ""}  # fmt: skip


def test_only_single_values_agree_and_ranges_are_counted_apart() -> None:
    """Ours are 2: published are 2, 1.9 and 4, which is 1, 1.05 and 0.5 times; a range that holds ours, a bound and a
    range that do not; one value that has none of ours beside it."""
    beside = [
        printed(2.0, 1.0),
        printed(1.9, 2 / 1.9),
        printed(4.0, 0.5),
        printed(None, None, 1.0, 3.0),
        printed(None, None, 0.0, 1.5) | {"in_range": "above"},
        printed(None, None, 2.5, 3.0) | {"in_range": "below"},
    ]
    rows = [({"on": "cpu"}, {"step_ms": figure(2.0, published=beside)}),
            ({"on": "gpu"}, {"step_ms": figure(None, published=[printed(3.0, None)])})]  # fmt: skip
    assert published_words(study({"step_ms": "ms"}, rows)) == (
        "Ours stand beside 3 of 4 published values: 0.500 to 1.05 times as large, 2 within 10 %; ours lie in 1 of 3 "
        "published ranges."
    )
    texts = [row[4].text for row in published_table(pairs(study({"step_ms": "ms"}, rows))).rows]
    assert texts == ["1.00", "1.05", "0.500", "inside", "above", "below", "–"]


def test_a_study_whose_ranges_alone_have_ours_claims_no_ratio() -> None:
    rows = [({"on": "cpu"}, {"step_ms": figure(2.0, published=[printed(None, None, 1.0, 3.0)])})]
    assert published_words(study({"step_ms": "ms"}, rows)) == "Ours lie in 1 of 1 published ranges."
    drawn = published_figure(pairs(study({"step_ms": "ms"}, rows)))
    assert drawn is None


def test_what_was_chosen_to_come_close_is_said_first() -> None:
    rows = [({"on": "cpu"}, {"step_ms": figure(2.0)})]
    found = answer(study({"step_ms": "ms"}, rows, fitted="tiles found by trying"))
    assert found.sentences[0] == "With tiles found by trying: a step takes 2.00 ms."


# ---- intervals ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "kind"),
    [
        (figure(2.0), ""),
        (figure(2.0, 2, 1.9, 2.1), "least to most of 2 repetitions"),
        (figure(2.0, 5, 1.9, 2.1), "least to most of 5 repetitions"),
        (figure(2.0, 6, 1.9, 2.1), "95 % interval of 6 repetitions"),
        (figure(2.0, 1, 1.9, 2.1), "95 % interval of its rounds"),
        (figure(2.0, 1, 1.9, 2.1, bounds="bounds of the readings"), "bounds of the readings"),
        (figure(2.0, 3, 1.9, 2.1, source="estimated"), "bounds of the power model"),
        (figure(2.0, 1, 1.0, 4.0, source="simulated"), "bounds of the tables it comes from"),
        (figure(2.0, 3, 1.9, 2.1) | {"values": []}, "95 % interval of the processes of both"),
    ],
)
def test_an_interval_is_called_what_it_is(one: dict[str, Any], kind: str) -> None:
    assert interval_kind(one) == kind
    assert (kind in study_cell(one).hint) is True


def test_an_interval_wider_than_its_figure_allows_shows_its_ends() -> None:
    assert study_cell(figure(2.0, 2, 1.0, 4.0)).text == "2.00 ±75 %"
    assert study_cell(figure(2.57, 2, 0.05, 133.0)).text == "2.57 (0.0500–133)"


def test_a_table_says_once_what_its_intervals_are() -> None:
    few = [figure(2.0, 2, 1.9, 2.1), figure(3.0, 4, 2.9, 3.1), figure(1.0)]
    assert interval_words(few) == f"± is half of an interval: least to most of 2 to 4 repetitions; {FEWER}."
    assert interval_words([figure(1.0), figure(None)]) == ""


def test_sizes_sort_as_sizes_and_words_as_words() -> None:
    sizes = ["1024MiB", "6MiB", "65MiB", "3GiB", "512KiB"]
    ordered = sorted(sizes, key=lambda size: float(axis_cell(size).order or 0))
    assert ordered == ["512KiB", "6MiB", "65MiB", "1024MiB", "3GiB"]
    assert axis_cell("cpu/1").order == "cpu/1" and axis_cell(True).text == "true"


# ---- answers ------------------------------------------------------------------------------------------------------


def test_the_answer_goes_from_the_least_to_the_most_with_where() -> None:
    found = {"cnn": figure(1.5, 1, 1.4, 1.6), "cache": figure(1.02, 1, 0.9, 1.1), "lstm": figure(1.2)}
    rows = [({"workload": "mlp", "with": name}, {"slowdown": one}) for name, one in found.items()]
    said = answer(study({"slowdown": ""}, rows))
    assert said.sentences[0] == (
        "A step takes 1.02 (cache, 0.900 to 1.10) to 1.50 (cnn, 1.40 to 1.60) times as long beside another "
        "program as alone [1 of 3 not significant, 1 of 3 measured once only]."
    )
    assert said.figures == ("slowdown",)


def test_the_base_is_not_held_against_itself() -> None:
    speeds = {"one": 1.0, "two": 1.8}
    rows = [({"variant": name}, {"speedup": figure(one, 2, one * 0.9, one * 1.1, published=[printed(1.0, one)])})
            for name, one in speeds.items()]  # fmt: skip
    first, published = answer(study({"speedup": ""}, rows, base="one")).sentences
    assert first == "The others are 1.80 (two, 1.62 to 1.98) times as fast as one."
    assert published == "Ours stand beside 1 of 1 published values: 1.80 times as large, none within 10 %."


def test_what_the_question_asks_for_and_nobody_could_measure_is_said() -> None:
    rows = [({"workload": name}, {"backend_bound_percent": figure(None), "step_ms": figure(value)})
            for name, value in (("cnn", 20.0), ("mlp", 2.0))]  # fmt: skip
    first, lacking = answer(study({"backend_bound_percent": "%", "step_ms": "ms"}, rows)).sentences
    assert first == "A step takes 2.00 ms (mlp) to 20.0 ms (cnn)."
    assert lacking == "The question asks for backend bound % too, which could not be measured: no sensor."


def test_nothing_measured_is_no_answer() -> None:
    rows = [({"workload": "cnn"}, {"step_ms": figure(None)})]
    assert answer(study({"step_ms": "ms"}, rows)).sentences == ("No answer yet: none of 1 configurations is measured.",)


# ---- pictures -----------------------------------------------------------------------------------------------------


def crossed() -> dict[str, Any]:
    rows = [({"variant": variant, "size": size},
             {"cycles": figure(value, published=[printed(None, value / 100, 50, 100)] if variant == "a" else [])})
            for variant, size, value in (("a", "2MiB", 120.0), ("a", "4MiB", 200.0), ("b", "2MiB", 10.0))]  # fmt: skip
    return study({"cycles": "cycles"}, rows)


def test_a_place_is_one_line_and_a_variant_one_mark() -> None:
    made = crossed()
    assert [(dot.place, dot.variant) for dot in dots_of(made, "cycles")] == [
        ("2MiB", "a"),
        ("4MiB", "a"),
        ("2MiB", "b"),
    ]
    drawn = dots_figure(made, made["columns"][0])
    assert drawn is not None
    published, first, second = series_of(drawn)
    assert (first.name, across(first), second.name, across(second)) == ("a", [120.0, 200.0], "b", [10.0])
    assert first.symbols[0] != second.symbols[0], "colours alone tell nothing apart"
    assert across(published) == [50, 100, None, 50, 100, None], "a range from end to end"
    assert drawn.fields[0].y.names == ("2MiB", "4MiB")
    assert upright(first) == [0, 1] and upright(second) == [0]


def test_marks_that_would_hide_each_other_are_drawn_one_below_the_other() -> None:
    """100 and 101 of 200 are less than a mark apart; 10 stands alone."""
    values = {"a": (100.0, 200.0), "b": (10.0, 200.0), "c": (101.0, 50.0)}
    rows = [({"variant": name, "size": size}, {"cycles": figure(value)})
            for name, pair in values.items() for size, value in zip(("2MiB", "4MiB"), pair, strict=True)]  # fmt: skip
    made = study({"cycles": "cycles"}, rows)
    drawn = dots_figure(made, made["columns"][0])
    assert drawn is not None
    (a, b, c) = ([y for _, y in filter(None, series.points)] for series in series_of(drawn))
    assert b[0] == 0 and a[0] < 0 < c[0] and c[0] - a[0] < 0.5, "within their place, in the order of variants"
    assert a[1] < 1 < b[1] and c[1] == 1
    assert drawn.height > 3 * 20, "a place has room for both"


@pytest.mark.parametrize(
    ("name", "unit", "ends"),
    [
        ("cycles", "cycles", {"a": (100.0, 90.0, 150.0), "b": (160.0, 140.0, 170.0), "c": (200.0, 190.0, 210.0)}),
        ("drift_percent", "%", {"a": (-5.0, -8.0, 2.0), "b": (0.5, -1.0, 1.0), "c": (3.0, 2.5, 3.5)}),
    ],
)
def test_intervals_that_reach_over_each_other_are_drawn_one_below_the_other(
    name: str, unit: str, ends: dict[str, tuple[float, float, float]]
) -> None:
    """Also below zero; c reaches nobody."""
    rows = [({"variant": variant, "size": "2MiB"}, {name: figure(value, 3, low, high)})
            for variant, (value, low, high) in ends.items()]  # fmt: skip
    made = study({name: unit}, rows)
    drawn = dots_figure(made, made["columns"][0])
    assert drawn is not None
    ((a,), (b,), (c,)) = ([y for _, y in filter(None, series.points)] for series in series_of(drawn))
    assert a < 0 < b and c == 0


def test_ratios_that_may_as_well_be_one_are_grey_in_picture_and_table() -> None:
    found = {"cnn": figure(1.5, 1, 1.4, 1.6), "cache": figure(1.02, 1, 0.9, 1.1), "lstm": figure(1.2)}
    rows = [
        ({"workload": name}, {"slowdown": one, "step_ms": figure(1.02, 2, 0.9, 1.1)}) for name, one in found.items()
    ]
    made = study({"slowdown": "", "step_ms": "ms"}, rows)
    drawn = dots_figure(made, made["columns"][0])
    assert drawn is not None
    sure, unsure = series_of(drawn)
    assert (across(sure), across(unsure)) == ([1.5, 1.2], [1.02])
    assert sure.color != unsure.color == GREY
    assert sure.name == unsure.name, "it is the same series"
    table = ours_table(made, made["columns"], "")
    assert [row[1].tone for row in table.rows] == ["", "quiet", ""]
    assert table.rows[1][1].hint.endswith("not significant: the interval holds 1")
    assert all(row[2].tone == "" for row in table.rows), "a time of 1 ms is no ratio"


def test_published_ranges_of_two_sources_are_two_lines_that_can_be_seen() -> None:
    """A thesis prints 40 to 45, an article 35 to 40: no bar from 35 to 45 was ever published."""
    made = crossed()
    thesis, article = (printed(None, 1.0, *ends) | {"hardware": name}
                       for name, ends in (("thesis", (40, 45)), ("article", (35, 40))))  # fmt: skip
    made["rows"][0]["figures"]["cycles"]["published"] = [thesis, article]
    made["rows"][1]["figures"]["cycles"]["published"] = [printed(60.0, 1.0) | {"hardware": "article"}]
    drawn = dots_figure(made, made["columns"][0])
    assert drawn is not None
    lines = {series.name: series for series in series_of(drawn)[:2]}
    assert across(lines["thesis"]) == [40, 45, None] and across(lines["article"]) == [35, 40, None, 60.0, None]
    heights = [point[1] for name in ("thesis", "article") if (point := lines[name].points[0])]
    assert heights[0] != heights[1] and all(abs(height) < 0.5 for height in heights), "both within their place"
    assert lines["thesis"].symbols != lines["article"].symbols
    assert all(series.opacity == 1 for series in lines.values())


def test_published_figures_stand_beside_ours_with_ratio_and_what_differs() -> None:
    found = pairs(crossed())
    assert [(pair.place, pair.printed["in_range"]) for pair in found] == [("a, 2MiB", "inside"), ("a, 4MiB", "inside")]
    assert published_figure(found) is None, "a range has no ratio"
    table = published_table(found)
    texts = dict(zip([column.name for column in table.columns], [cell.text for cell in table.rows[0]], strict=True))
    assert texts == {"where": "a, 2MiB", "figure": "cycles", "ours": "120", "published": "50–100",
                     "ours over published": "inside", "published on": "K40",
                     "what differs": "another card"}  # fmt: skip


def test_printed_figures_that_the_interval_of_ours_reaches_are_grey() -> None:
    ours = {"far": figure(2.0, 6, 1.9, 2.1, published=[printed(3.0, 0.667)]),
            "near": figure(2.0, 6, 1.9, 2.1, published=[printed(2.05, 0.976)]),
            "range": figure(2.0, 6, 1.9, 2.1, published=[printed(None, 1.0, 1.0, 2.0)]),
            "once": figure(2.0, published=[printed(2.0, 1.0)])}  # fmt: skip
    found = pairs(study({"step_ms": "ms"}, [({"workload": name}, {"step_ms": one}) for name, one in ours.items()]))
    assert [pair.reached for pair in found] == [False, True, True, False], "one run has no interval"
    assert [row[4].tone for row in published_table(found).rows] == ["", "quiet", "quiet", ""]
    drawn = published_figure(found)
    assert drawn is not None and list(map(across, series_of(drawn))) == [[0.667, 1.0], [0.976]]


def test_stacks_are_made_of_what_a_row_has() -> None:
    keys = {"input_ms": "ms", "operations_ms": "ms", "host_ms": "ms"}
    rows = [({"workload": "cnn"}, {"input_ms": figure(1.0), "operations_ms": figure(8.0), "host_ms": figure(1.0)}),
            ({"workload": "mlp"}, {key: figure(None) for key in keys})]  # fmt: skip
    (stack,) = stacks(study(keys, rows))
    assert [name for name, _ in stack.bars] == ["cnn"] and [name for name, _ in stack.parts] == [
        "input",
        "operations",
        "rest of step",
    ]
    drawn = stack_figure(stack)
    assert [lengths(boxes) for boxes in boxes_of(drawn).values()] == [
        {0: pytest.approx(10)}, {0: pytest.approx(80)}, {0: pytest.approx(10)},
    ]  # fmt: skip


def test_the_front_holds_what_no_other_beats_in_both() -> None:
    made = crossed()
    made["rows"] += [{**made["rows"][0], "configuration": {"variant": name, "size": "2MiB"}} for name in ("c", "d")]
    ratios = {"b": (0.5, 2.0), "c": (0.6, 3.0), "d": (2.0, 0.5)}
    made["compared"] = [{"figure": key, "variant": name, "ratio": pair[at], "n": 4}
                        for name, pair in ratios.items() for at, key in enumerate(("cycles", "energy_uJ"))]  # fmt: skip
    front = {one.name: one.front for one in trades(made)}
    assert front == {"a": True, "b": True, "c": False, "d": True}, "c needs more of both than b"
