"""What kernels wait for, drawn: bars are the shares of the table, and few reasons have names."""

from __future__ import annotations

import pytest

from charts import boxes_of, lengths
from sonda.analysis.device.stalls import StallRow
from sonda.probes.counters.topdown_tables import load_tables
from sonda.report.markup import legend_html
from sonda.report.views.counters.topdown import MEANINGS
from sonda.report.views.device.counted import COLORS, MOST_KERNELS, OTHERS, reason_meanings, stall_figure


def row(name: str, share: float, **shares: float) -> StallRow:
    return StallRow(name, 1, 1000.0 * share, share, shares, next(iter(shares), ""))


def test_bars_are_shares_of_cycles_with_the_longest_kernel_first() -> None:
    figure = stall_figure([row("short", 0.25, wait=0.5), row("<b>long", 0.75, long_scoreboard=0.8, wait=0.1)])
    assert figure is not None
    assert figure.fields[0].y.names[1] == "short"
    drawn = boxes_of(figure)
    # Weighed by time: 0.6 for long_scoreboard, 0.2 for wait.
    assert list(drawn) == ["long_scoreboard", "wait"]
    assert lengths(drawn["long_scoreboard"]) == {0: pytest.approx(80)}
    assert lengths(drawn["wait"]) == {0: pytest.approx(10), 1: pytest.approx(50)}
    assert "% of the cycles of its warps, counted" in drawn["wait"].hints[0]


def test_a_reason_says_what_warps_wait_for() -> None:
    figure = stall_figure([row("kernel", 1.0, barrier=0.5, selected=0.3)])
    assert figure is not None
    assert [boxes.hints[0].rpartition("\n")[2] for boxes in boxes_of(figure).values()] == [
        "they wait at a barrier for other warps of their block", "they wait for nothing: they issue",
    ]  # fmt: skip


def test_reasons_beyond_the_colours_are_one_field() -> None:
    many = {f"r{at}": 0.1 - at / 100 for at in range(len(COLORS) + 2)}
    figure = stall_figure([row("kernel", 1.0, **many)])
    assert figure is not None
    drawn = boxes_of(figure)
    assert list(drawn) == [*(f"r{at}" for at in range(len(COLORS))), OTHERS]
    assert lengths(drawn[OTHERS]) == {0: pytest.approx(100 * ((0.1 - 7 / 100) + (0.1 - 8 / 100)))}
    assert len({boxes.color for boxes in drawn.values()}) == len(drawn)


def test_nothing_counted_is_no_picture_and_many_kernels_are_cut() -> None:
    assert stall_figure([]) is None and stall_figure([row("none", 1.0)]) is None
    figure = stall_figure([row(f"k{at}", 0.01, wait=0.5) for at in range(MOST_KERNELS + 5)])
    assert figure is not None and len(figure.fields[0].y.names) == MOST_KERNELS


def test_what_reasons_mean_can_be_read_without_a_mouse_too() -> None:
    meant = reason_meanings([row("kernel", 1.0, barrier=0.5, selected=0.3), row("other", 0.5, barrier=0.1)])
    assert meant["barrier"] == "warps wait at a barrier for other warps of their block" and len(meant) == 2
    html = legend_html({**meant, "<b>": "a & b"})
    assert html.count("<dt>") == 3 and "&lt;b&gt;" in html and "a &amp; b" in html and legend_html({}) == ""


def test_every_category_of_every_processor_has_a_meaning() -> None:
    for name, table in load_tables().items():
        assert {one.name for one in table.definition.categories if not one.meaning} <= set(MEANINGS), name
