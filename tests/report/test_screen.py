"""A screen: what it does with text from anywhere, in windows of any width and on terminals of any kind."""

from __future__ import annotations

import re

import pytest
from rich.cells import cell_len

from sonda.report.blocks import Items, TableBlock, saved_paragraph
from sonda.report.notebook import render_fragment
from sonda.report.screen import _STYLES, Screen, fit_columns, width_of
from sonda.report.table import BOUNDS, Cell, Column, Table, build, words

HOSTILE = "a\x1b[31mb\x1b]0;owned\x07c\rd\u202ee\u2028f\x9bg\ud800h"
HARMLESS = "a�[31mb�]0;owned�c�d�e�f�g�h"


@pytest.fixture(autouse=True)
def any_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "TERM"):
        monkeypatch.delenv(name, raising=False)


def hostile_table() -> Table:
    return build(
        [
            (Column(HOSTILE, right=False, path=True), [Cell(HOSTILE)]),
            (Column("number", keep=1), [Cell("–", missing=HOSTILE)]),
            (Column("said", right=False, wrap=True), words([HOSTILE])),
        ]
    )


@pytest.mark.parametrize("color", [False, True])
def test_nothing_that_is_shown_can_act(color: bool) -> None:
    screen = Screen(200, color)
    screen.line(HOSTILE, "bold", 2, 2)
    screen.items(f"{HOSTILE}: ", [HOSTILE, HOSTILE])
    screen.table(hostile_table())
    screen.show([saved_paragraph([HOSTILE])])
    text = screen.text()
    # Of a line 1, of items 3, of the table a head, two cells and a reason, of the last line 2.
    assert text.count(HARMLESS) == 10
    for char in ("\r", "\x07", "\u202e", "\u2028", "\x9b", "\ud800", "\x1b]", "\x1b[31mb"):
        assert char not in text
    assert ("\x1b" in text) == color


def test_what_is_left_out_is_named_without_harm() -> None:
    screen = Screen(40, False)
    screen.table(build([(Column("kept"), [Cell("x" * 36)]), (Column(HOSTILE, keep=1), [Cell("1")])]))
    assert f"left out at this width: {HARMLESS}" in " ".join(screen.text().split())


def test_a_name_with_a_line_break_stays_on_its_line() -> None:
    screen = Screen(80, False)
    screen.table(
        build([(Column("layer", right=False), words(["one\ntwo\r\nthree\tfour"])), (Column("n"), words(["1"]))])
    )
    assert screen.text().splitlines() == ["  layer                n", "  one two three four   1"]


@pytest.mark.parametrize(
    ("said", "found"), [("72", 72), ("²", None), ("", None), ("wide", None), ("0", None), ("-5", None)]
)
def test_a_width_that_is_no_number_is_no_width(said, found, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("COLUMNS", said)
    with open(tmp_path / "file", "w") as stream:
        assert width_of(stream) == found


@pytest.mark.parametrize(("name", "value", "escapes"), [("TERM", "dumb", False), ("TERM", "xterm", True)])
def test_a_dumb_terminal_gets_no_codes(name, value, escapes, monkeypatch) -> None:
    monkeypatch.setenv(name, value)
    screen = Screen(80, color=True)
    screen.line("a verdict", "bold")
    assert ("\x1b" in screen.text()) == escapes


def test_every_bound_has_a_colour_of_its_own() -> None:
    colours = [_STYLES[bound] for bound in BOUNDS]
    assert len(set(colours)) == len(BOUNDS)


def test_a_sentence_folds_before_a_column_is_left_out() -> None:
    """10 + 3 + 7 + 3 cells leave 54 of 77 for a sentence of 200, which needs 28."""
    table = build(
        [
            (Column("kernel", right=False), words(["x" * 10])),
            (Column("share %", keep=6), words(["12.0"])),
            (Column("cycles", right=False, wrap=True), words(["long_scoreboard 40 % " * 10])),
        ]
    )
    shown, dropped = fit_columns(table, 77)
    assert dropped == [] and len(shown.columns) == 3
    assert fit_columns(table, 50)[1] == ["share %"], "10 + 3 + 7 + 3 + 28 are 51"
    screen = Screen(80, False)
    screen.table(table)
    assert max(map(cell_len, screen.text().splitlines())) <= 80


def test_columns_of_one_name_are_named_once_where_they_are_left_out() -> None:
    table = build([(Column("layer"), words(["x" * 20])), *((Column("%", keep=3), words(["1.0"])) for _ in range(3))])
    assert fit_columns(table, 22)[1] == ["%"]


@pytest.mark.parametrize("path", [False, True])
@pytest.mark.parametrize("width", [40, 41, 42, 43])
def test_characters_of_two_cells_are_counted_as_two(path: bool, width: int) -> None:
    names = words(["卷积层" * 12, "層.注意力机制" * 6])
    table = build([(Column("layer", right=False, path=path), names), (Column("ms"), words(["1.0", "2.0"]))])
    screen = Screen(width, False)
    screen.table(table)
    screen.items("試: ", ["卷积层" * 4] * 3)
    lines = screen.text().splitlines()
    assert max(map(cell_len, lines)) <= width
    assert all("…" in line for line in lines[1:3]), "cut, not pushed beyond the edge"


def test_a_notebook_takes_what_a_screen_takes() -> None:
    text = render_fragment([Items([HOSTILE], "Try: "), TableBlock(hostile_table()), saved_paragraph(["7f3a"])])
    assert "\x1b" not in text and "\u202e" not in text and "Page: sonda report 7f3a" in text


def test_a_folded_sentence_leaves_no_blanks_beyond_the_edge_of_a_coloured_terminal() -> None:
    """Where no colour is sent, blanks at ends are cut off; codes stand behind them where one is."""
    screen = Screen(60, color=True)
    detail = words(["instructions of many kinds " * 9])
    screen.table(
        build(
            [(Column("check", right=False), words(["processor"])), (Column("detail", right=False, wrap=True), detail)]
        )
    )
    lines = [re.sub("\x1b\\[[0-9;]*m", "", line) for line in screen.text().splitlines()]
    assert len(lines) > 3 and max(map(len, lines)) <= 60


def test_long_names_are_cut_before_columns_are_left_out() -> None:
    """A command of 100 characters must not hide when and how fast every other run was."""
    table = build(
        [
            (Column("run", right=False), words(["7f3a", "0bad"])),
            (Column("when", right=False, keep=3), words(["2026-11-15 11:30"] * 2)),
            (Column("workload", right=False), words(["python train.py" * 7, "mlp"])),
            (Column("step", keep=6), words(["1.26 s", "3.20 ms"])),
        ]
    )
    # 4 + 16 + 7 and three gaps of 3 leave 42 of 78.
    shown, dropped = fit_columns(table, 78)
    assert dropped == [] and [row[2].text for row in shown.rows] == [("python train.py" * 7)[:41] + "…", "mlp"]
    # 4 + 16 + 32 + 7 + 9 are 68: one less, and a column goes.
    assert fit_columns(table, 68)[1] == [] and fit_columns(table, 67)[1] == ["when"]


def test_what_stands_apart_by_its_end_is_not_cut_where_columns_can_stand_in_bands() -> None:
    names = words(["rank 0 cuda:0 stream 14", "rank 0 cuda:0 stream 15"])
    table = build([(Column("stream", right=False), names), *((Column("x" * 18), words(["1"] * 2)) for _ in range(4))])
    screen = Screen(80, False)
    screen.table(table)
    text = screen.text()
    assert text.count("stream 14") == text.count("stream 15") == 2
    assert max(map(cell_len, text.splitlines())) <= 80
    narrow = Screen(40, False)
    narrow.table(table)
    assert max(map(cell_len, narrow.text().splitlines())) <= 40, "cut after all where not even two columns fit"


def test_a_line_that_fits_is_one_line_whatever_would_hang_below() -> None:
    screen = Screen(40, False)
    screen.line("x" * 19 + " " + "y" * 18, "", 2, 8)
    screen.items("Try: ", ["a" * 33, "b c " * 12])
    lines = screen.text().splitlines()
    assert lines[:2] == ["  " + "x" * 19 + " " + "y" * 18, "  Try: " + "a" * 33]
    assert lines[2].startswith("       b c") and lines[3].startswith("         c b"), (
        "what goes on is told from what begins"
    )


@pytest.mark.parametrize("name", ["COLUMNS", "LINES"])
def test_a_size_that_is_no_number_disturbs_no_screen(name: str, monkeypatch) -> None:
    monkeypatch.setenv(name, "²")
    screen = Screen()
    screen.line("a verdict", "bold")
    assert screen.text() == "a verdict" and screen.width == 120
