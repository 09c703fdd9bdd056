"""Any block is rendered by any renderer, with all its words and nothing that acts."""

from __future__ import annotations

import re
from typing import get_args

import pytest

from sonda.analysis.findings import Remark
from sonda.report.blocks import (
    Advice,
    Aside,
    Bar,
    Bars,
    Block,
    Facts,
    FigureBlock,
    Fold,
    Gap,
    Heading,
    Items,
    Legend,
    Number,
    Numbers,
    OneLine,
    Panel,
    Paragraph,
    StackedBar,
    Suggestion,
    TableBlock,
    Tree,
    VerdictBlock,
    answer,
    saved_paragraph,
    stack_parts,
)
from sonda.report.charts.chart import Axis, Chart, ColorScale, Guide, Plot
from sonda.report.charts.icicle import Icicle, Slab
from sonda.report.markup import blocks_html
from sonda.report.notebook import render_fragment
from sonda.report.screen import render
from sonda.report.table import Cell, Column, build

TABLE = build([(Column("<layer>", right=False), [Cell("<conv>")]), (Column("ms"), [Cell("1.5", 1.5)])], "times")
FIGURE = Chart(Axis(names=("a",)), (Plot(Axis("<ms>"), (Guide(0.0),)),), 100)
SLAB = Slab("<conv>", ("100 %", "50 %"), "<conv>, 2 ms", "#ffffff", 0, ((0.0, 1.0), (0.0, 0.5)))
TREE = Icicle({"": [SLAB]}, ("time", "bytes"), ColorScale("", ("#ffffff", "#000000"), 0, 1))
EVERY: list[tuple[Block, list[str]]] = [
    (Gap(), []),
    (Heading("<mlp>", "on 2 cores"), ["<mlp>", "on 2 cores"]),
    (Paragraph("<step> is slow"), ["<step> is slow"]),
    (Items(["<a>", "b"], "GPU "), ["<a>", "b"]),
    (Advice([Suggestion("more threads", "--threads 2", "1.63x (measured)")]), ["--threads 2", "1.63x (measured)"]),
    (TableBlock(TABLE), ["<layer>", "<conv>", "1.5"]),
    (FigureBlock(FIGURE, "bars", TABLE), ["<conv>", "1.5"]),
    (Tree(TREE, "tree", TableBlock(TABLE, place="layers")), ["<conv>", "1.5"]),
    (Numbers([Number("<busy>", "97 %", "97 %, derived")]), ["<busy>", "97 %"]),
    (Numbers([Number("step", "2 ms", "2 ms, measured", "±1 %")], "facts"), ["step", "2 ms", "±1 %"]),
    (Facts("Machine", [("<cpu>", "two & a half")]), ["Machine", "<cpu>", "two & a half"]),
    (Legend({"<stall>": "waits"}), ["<stall>", "waits"]),
    (Fold("<More>", [Paragraph("folded")]), ["<More>", "folded"]),
    (Panel("<Layers>", [Paragraph("inside")], "a caption"), ["<Layers>", "inside", "a caption"]),
    (VerdictBlock([Paragraph("inside")], "memory"), ["inside"]),
    (StackedBar("<step>, 2 ms", [Bar("<a>", 0.75, "75 %"), Bar("b", 0.25, "25 %")]), ["<step>, 2 ms", "<a>", "25 %"]),
    (Bars([Bar("<conv>", 0.5, "50 %", "Conv2d", "memory"), Bar("b", 0.0, "0 %")]), ["<conv>", "Conv2d", "50 %"]),
    (OneLine(["<noisy>", "few steps"], "warning"), ["<noisy>", "few steps"]),
    (Aside([Paragraph("inside")]), ["inside"]),
]
"""A block of every kind, and words that no rendering may lose."""


def test_there_is_an_example_of_every_block() -> None:
    assert {type(block) for block, _ in EVERY} == set(get_args(Block))


@pytest.mark.parametrize(("block", "words"), EVERY, ids=lambda one: type(one).__name__)
def test_a_terminal_renders_any_block(block: Block, words: list[str]) -> None:
    text = render([block], 100, False)
    assert all(word in text for word in words), text
    assert bool(text) == bool(words)


@pytest.mark.parametrize(("block", "words"), EVERY, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("notebook", [False, True])
def test_page_and_notebook_render_any_block(block: Block, words: list[str], notebook: bool) -> None:
    html = render_fragment([block]) if notebook else blocks_html([block], "run0")
    shown = re.sub(r"<style>.*</style>", "", html, flags=re.DOTALL)
    for word in words:
        assert word.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;") in shown, shown
    assert not re.search(r"<(mlp|step|a|layer|conv|busy|cpu|stall|More|Layers)>", shown), "names are text"


@pytest.mark.parametrize(
    ("items", "width", "line"),
    [
        (["a", "b"], 40, "  ! a · b"), (["one doubt", "another doubt"], 26, "  ! one doubt · 1 more"),
        (["a doubt that is much too long for a line", "b"], 30, "  ! a doubt that is … · 1 more"), ([], 40, ""),
    ],
)  # fmt: skip
def test_a_line_is_one_line(items: list[str], width: int, line: str) -> None:
    assert render([OneLine(items, "warning")], width, False) == line


def test_a_bar_is_as_long_as_its_share_and_fills_the_line() -> None:
    bar = render([StackedBar("2 ms", [Bar("a", 0.75, "75 %"), Bar("b", 0.25, "25 %")])], 49, False).splitlines()[0]
    assert bar == "  2 ms   " + "█" * 30 + "▒" * 10
    lines = render([Bars([Bar("a", 0.1, "10 %"), Bar("b", 0.05, "5 %")], full=0.2)], 80, False).splitlines()
    assert [line.count("█") for line in lines] == [15, 7] and "▌" in lines[1], "a tenth of 0.2 is half of the room"


def test_parts_of_a_bar_are_named_up_to_six_and_add_up() -> None:
    parts = [(f"phase {number}", share) for number, share in enumerate([0.3, 0.2, 0.2, 0.1, 0.1, 0.05, 0.04, 0.01])]
    bars = stack_parts("step", parts).bars
    assert [bar.name for bar in bars] == [*(f"phase {number}" for number in range(5)), "the rest"]
    assert sum(bar.share for bar in bars) == pytest.approx(1)
    assert [bar.name for bar in stack_parts("step", [("a", 0.99), ("b", 0.001)]).bars] == ["a", "b"], (
        "alone it is named"
    )


def test_figures_and_tables_of_a_section_have_its_place_in_their_ids() -> None:
    tree = Tree(TREE, "tree", TableBlock(TABLE, place="layers"), flat=True)
    html = blocks_html([FigureBlock(FIGURE, "bars"), Panel("Layers", [tree])], "run3")
    assert re.findall(r'class="(?:figure|icicle)" id="(.*?)"', html) == ["run3bars", "run3tree"]
    assert '<table id="run3layers"' in html
    assert 'data-flat="run3layers"' in html and html.count('name="run3tree"') == 2


def test_only_a_number_with_a_hint_can_be_walked_to() -> None:
    html = blocks_html([Numbers([Number("step", "2 ms", "measured"), Number("runs", "3")], "facts")], "")
    assert html.count("tabindex") == 1 and "<div><dt>runs</dt><dd>3</dd></div>" in html


def test_a_figure_that_cannot_be_drawn_says_why() -> None:
    assert "Nothing to draw: no step was seen." in blocks_html([FigureBlock(None, "bars", absent="no step was seen")],
                                                               "")  # fmt: skip


@pytest.mark.parametrize(("alone", "element"), [(True, "h1"), (False, "h2")])
def test_the_first_heading_of_a_page_is_the_only_run_of_it(alone: bool, element: str) -> None:
    html = blocks_html([Heading("mlp"), Heading("train", level=2), Heading("Energy", level=3)], "", alone)
    assert re.findall(r"<(h\d)>", html) == [element, "h2", "h3"]


def test_an_answer_has_what_to_try_and_what_makes_it_doubtful() -> None:
    found = answer(Remark("B slows A"), Remark("fewer threads"), [Remark("noisy")])
    assert render([found], 80, False).split("\n") == [
        "  B slows A", "  Try: fewer threads", "  ! noisy",
    ]  # fmt: skip
    assert "What to try" not in blocks_html([answer(Remark("B slows A"))], "")


def test_saved_runs_are_named_as_they_are_typed() -> None:
    assert saved_paragraph(["7f3a"]).text == "Saved as run 7f3a. Page: sonda report 7f3a"
    assert saved_paragraph(["7f3a", "8b1c"]).text == "Saved as runs 7f3a 8b1c. Page: sonda report 7f3a 8b1c"
