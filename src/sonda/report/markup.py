"""Blocks as HTML for a page, and tables for a notebook too. Everything from outside is escaped here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import assert_never

from sonda.analysis import wording
from sonda.analysis.wording import plural
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
)
from sonda.report.charts.chart import Chart
from sonda.report.charts.hints import Hints
from sonda.report.charts.icicle import icicle_html
from sonda.report.charts.svg import NARROW, WIDE, draw
from sonda.report.labels import markup, script_data
from sonda.report.palette import BLUE, SKY, part_colors
from sonda.report.rows import cell_classes, copied_name, has_units, pack_rows
from sonda.report.table import Cell, Column, Table

LONG = 25
"""Rows beyond which a table scrolls inside of its panel."""
STATIC = 100
"""Rows that stand in the page as elements; of a longer table the script draws those in sight, from data."""


_PARAGRAPHS = {
    "": "", "first": "first", "quiet": "soft small", "soft": "soft", "warning": "warning", "remark": "warning",
    "bad": "warning", "first bad": "first", "small": "small",
}  # fmt: skip
"""Classes of paragraphs by their tone."""


def blocks_html(blocks: Iterable[Block], place: str, alone: bool = False) -> str:
    """These blocks for a page, in a section whose id is `place`; `alone` says that the section has the page's first
    heading."""
    pieces = [_block_html(block, place, alone) for block in blocks]
    return "\n".join(piece for piece in pieces if piece)


def _block_html(block: Block, place: str, alone: bool) -> str:
    match block:
        case Gap():
            return ""
        case Heading(text, detail, level):
            element = f"h{level}" if alone or level > 1 else "h2"
            below = f'\n<p class="soft">{markup(detail)}</p>' if detail else ""
            return f"<{element}>{markup(text)}</{element}>{below}"
        case Paragraph(text, tone):
            kind = f' class="{_PARAGRAPHS[tone]}"' if _PARAGRAPHS[tone] else ""
            return f"<p{kind}>{markup(text)}</p>"
        case Items(items, tone=tone):
            listed = "".join(f"<li>{markup(item)}</li>" for item in items)
            look = "plain soft small" if tone else "plain small"
            return f'<ul class="{look}">{listed}</ul>' if listed else ""
        case Advice(suggestions, how):
            return advice_html(map(_suggestion, suggestions), how)
        case TableBlock(table, _, _, look, tall, name):
            html = table_html(table, look, tall)
            return html.replace("<table ", f'<table id="{place}{name}" ', 1) if name else html
        case FigureBlock(figure, name, table, absent):
            return figure_html(figure, f"{place}{name}", absent, table)
        case Tree():
            return _tree_html(block, place)
        case Numbers(numbers, kind):
            return _numbers_html(numbers, kind)
        case Legend(meanings):
            return legend_html(meanings)
        case Facts(title, facts):
            rows = "".join(f"<tr><th>{markup(name)}</th><td>{markup(text)}</td></tr>" for name, text in facts)
            inside = f'<div class="scroll"><table class="prose">{rows}</table></div>'
            return f"<details><summary>{markup(title)}</summary>{inside}</details>"
        case Fold(title, inside):
            folded = blocks_html(inside, place)
            return f'<details class="behind"><summary>{markup(title)}</summary>{folded}</details>'
        case Panel(title, inside, caption, opened):
            return panel_html(title, blocks_html(inside, place), caption, opened)
        case VerdictBlock(inside, kind):
            look = markup(f"panel verdict {kind}".rstrip())
            return f'<div class="{look}">{blocks_html(inside, place)}</div>'
        case OneLine(items, tone):
            return _block_html(Paragraph(" · ".join(items), tone), place, alone)
        case StackedBar(whole, bars):
            return stacked_bar_html(whole, bars)
        case Bars():
            return bars_html(block)
        case Aside(inside):
            return blocks_html(inside, place)
        case _:
            assert_never(block)


def _tree_html(tree: Tree, place: str) -> str:
    """The icicle with its choice of widths, what its colours mean, and the table of its nodes."""
    table, name = f"{place}{tree.table.place}", f"{place}{tree.place}"
    html = f'<p class="soft">Nothing to draw: {markup(tree.absent)}.</p>'
    if tree.figure is not None:
        shades = ", ".join(tree.figure.scale.colors)
        look = f"background:linear-gradient(90deg, {shades})"
        meaning = f'<span>little <span class="shades" style="{look}"></span> much of its own</span>'
        back = f'<button class="plain" type="button" data-back="{name}" hidden>back to the whole</button>'
        choice = _width_choice(tree.figure.measures, name)
        html = f'<div class="tools">{choice}{meaning}{back}</div>{icicle_html(tree.figure, name)}'
    inside = _block_html(tree.table, place, alone=False)
    if tree.flat:
        inside = (
            f'<div class="tools"><label><input type="checkbox" data-flat="{table}"> innermost layers only</label></div>'
            f"{inside}"
        )
    rows = plural(len(tree.table.table.rows), "row")
    return f'{html}<details class="behind tree"><summary>Table of layers, {rows}</summary>{inside}</details>'


def _width_choice(widths: Sequence[str], place: str) -> str:
    """Buttons that choose the width, where there is a choice."""
    if len(widths) < 2:
        return ""
    buttons = "".join(
        f'<label><input type="radio" name="{place}" value="{index}"{" checked" if index == 0 else ""}> '
        f"{markup(name)}</label>"
        for index, name in enumerate(widths)
    )
    return f'<fieldset class="choice" data-measures="{place}"><legend>Width:</legend>{buttons}</fieldset>'


def _suggestion(suggestion: Suggestion) -> str:
    options = f"<code>{markup(suggestion.options)}</code> " if suggestion.options else ""
    result = f" <strong>{markup(suggestion.result)}</strong>" if suggestion.result else ""
    return f"{options}{markup(suggestion.text)}{result}"


def _numbers_html(numbers: Iterable[Number], kind: str) -> str:
    if kind == "facts":
        boxes = "".join(
            f"<div{_hint_attributes(number)}><dt>{markup(number.name)}</dt><dd>{markup(number.text)}"
            f"{f' <small>{markup(number.note)}</small>' if number.note else ''}</dd></div>"
            for number in numbers
        )
        return f'<dl class="facts">{boxes}</dl>'
    items = "".join(
        f"<li{_hint_attributes(number)}>{markup(number.name)} <strong>{markup(number.text)}</strong></li>"
        for number in numbers
    )
    return f'<ul class="evidence" aria-label="numbers behind this">{items}</ul>' if items else ""


def _hint_attributes(number: Number) -> str:
    """Attributes that make a number with a hint reachable by keyboard; guesses are hatched as in tables."""
    if not number.hint:
        return ""
    return f' tabindex="0"{" class=estimated" if number.estimated else ""} title="{markup(number.hint)}"'


def table_html(table: Table, classes: str = "", tall: bool = False) -> str:
    """A table whose cells carry their sort key and a tooltip with source and interval; a `tall` one scrolls inside of
    its panel, however few rows it has.

    The script adds sorting, where `classes` has `sortable`, searching and copying; without it the first rows are there.
    """
    head = "".join(
        _head(column, index, [row[index] for row in table.rows]) for index, column in enumerate(table.columns)
    )
    attributes = table.attributes or ({},) * len(table.rows)
    body = "\n".join(
        f"<tr{_attributes(extra)}>"
        + "".join(
            _field(cell, column, index) for index, (cell, column) in enumerate(zip(row, table.columns, strict=True))
        )
        + "</tr>"
        for row, extra in zip(table.rows[:STATIC], attributes[:STATIC], strict=True)
    )
    reasons = "".join(
        f"<li>– {markup(', '.join(name or 'value' for name in names))}: {markup(reason)}</li>"
        for reason, names in table.reasons().items()
    )
    notes = f'<ul class="reasons">{reasons}</ul>' if reasons else ""
    name = f' aria-label="{markup(table.name)}"' if table.name else ""
    scrolls = " tall" if tall or len(table.rows) > LONG else ""
    return (
        f'<div class="scroll{scrolls}"><table class="{markup(classes)}"{name}>\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody></table></div>{_remaining_rows(table)}{notes}"
    )


def _remaining_rows(table: Table) -> str:
    """All rows as data, where they are too many for elements."""
    if len(table.rows) <= STATIC:
        return ""
    sentence = f"The first {STATIC} of {len(table.rows):,} rows; scripts, which are switched off here, show the others."
    return (
        f'<script type="application/json" class="rows">{script_data(pack_rows(table))}</script>'
        f'<noscript><p class="soft small">{sentence}</p></noscript>'
    )


def _head(column: Column, index: int, cells: list[Cell]) -> str:
    align = "number" if column.right else "word"
    hint = f' title="{markup(column.hint)}"' if column.hint else ""
    copied = f' data-copied="{markup(copied_name(column, cells))}"' if has_units(cells) else ""
    return f'<th scope="col" class="{align}" data-column="{index}"{hint}{copied}>{markup(column.name)}</th>'


def _field(cell: Cell, column: Column, index: int) -> str:
    align = "number" if column.right else "word"
    tone = f" {cell_classes(cell)}".rstrip()
    data = {"order": cell.order, "unit": cell.unit or None, "low": cell.low, "high": cell.high}
    order = "".join(f' data-{name}="{markup(str(value))}"' for name, value in data.items() if value is not None)
    hint = f' title="{markup(cell.hint)}"' if cell.hint else ""
    element = "th scope='row'" if index == 0 else "td"
    close = "th" if index == 0 else "td"
    return f'<{element} class="{align}{tone}"{order}{hint}>{markup(cell.text)}</{close}>'


def _attributes(extra: dict[str, str]) -> str:
    return "".join(f' data-{name}="{markup(value)}"' for name, value in extra.items())


def panel_html(title: str, html: str, caption: str = "", opened: bool = True) -> str:
    """A box of a page that a reader opens by its title, with a line below that."""
    note = f'<p class="soft small">{markup(caption)}</p>' if caption else ""
    if not title:
        return f'<div class="panel">{note}{html}</div>'
    look = " open" if opened else ""
    return f'<details class="panel"{look}><summary><h3>{markup(title)}</h3></summary>{note}{html}</details>'


def advice_html(items: Iterable[str], how: str = "") -> str:
    """What to try, and `how`. Each of `items` is HTML already. Without any, ''."""
    explanation = f' <span class="soft small">({markup(how)})</span>' if how else ""
    listed = "".join(f"<li>{item}</li>" for item in items)
    return f'<p><strong>What to try</strong>{explanation}</p><ul class="plain">{listed}</ul>' if listed else ""


def legend_html(meanings: Mapping[str, str]) -> str:
    """The meanings of names in a picture or table, folded until a reader opens them; '' without any."""
    items = "".join(f"<dt>{markup(name)}</dt><dd>{markup(meaning)}</dd>" for name, meaning in meanings.items())
    head = "<summary>What these names mean</summary>"
    return f'<details class="legend">{head}<dl class="words">{items}</dl></details>' if items else ""


def figure_html(figure: Chart | None, place: str, absent: str, table: Table | None = None) -> str:
    """The figure for wide windows and for narrow ones, with the table behind it; without one, why there is none."""
    if figure is None:
        return f'<p class="soft">Nothing to draw: {markup(absent)}.</p>'
    hints = Hints()
    wide = draw(figure, WIDE, hints, f"{place}-wide", "wide")
    narrow = draw(figure, NARROW, hints, f"{place}-narrow", "narrow")
    hint_script = f'<script type="application/json" class="hints">{script_data(list(hints.numbers))}</script>'
    return f'<div class="figure" id="{place}" tabindex="0">{wide}{narrow}{hint_script}</div>' + table_behind_html(table)


def table_behind_html(table: Table | None) -> str:
    """The table behind a picture, which a reader opens; '' without one."""
    if table is None or not table.rows:
        return ""
    rows = plural(len(table.rows), "row")
    inside = table_html(table, "sortable", tall=True)
    return f'<details class="behind"><summary>Table behind this picture, {rows}</summary>{inside}</details>'


def stacked_bar_html(whole: str, bars: Sequence[Bar]) -> str:
    """A bar that is made of these, below what it is of, and what its colours stand for."""
    total = sum(bar.share for bar in bars) or 1.0
    colors = part_colors(bar.name for bar in bars)
    parts = "".join(
        f"<span style='flex:{100 * bar.share / total:.3g};background:{color}' "
        f"title='{markup(bar.name)} {markup(bar.text)}'></span>"
        for bar, color in zip(bars, colors, strict=True)
    )
    names = " &nbsp; ".join(
        f"<span style='white-space:nowrap'><span style='color:{color}'>■</span> {markup(bar.name)} "
        f"{markup(bar.text)}</span>"
        for bar, color in zip(bars, colors, strict=True)
    )
    return (
        f"<div class='stack'><div>{markup(whole)}</div><div class='parts' style='display:flex;height:1em'>{parts}</div>"
        f"<div class='names'>{names}</div></div>"
    )


def bars_html(block: Bars) -> str:
    """A row for each bar; what it would take at the roof is its darker part."""
    bars = block.bars
    longest = max([block.full, *(bar.share for bar in bars)]) or 1.0
    rows = "".join(
        f"<tr><th scope='row' class='word'>{markup(bar.name)}</th><td class='word soft about'>{markup(bar.about)}</td>"
        f"<td class='bar' style='width:14em'>{_bar_html(bar, longest)}</td>"
        f"{_bar_number(bar)}<td class='word soft'>{markup(_bar_note(bar))}</td></tr>"
        for bar in bars
    )
    head = f"<caption class='soft'>{markup(block.head)}</caption>" if block.head else ""
    return f"<table class='bars'>{head}{rows}</table>" if rows else ""


def _bar_number(bar: Bar) -> str:
    hint_attributes = f" tabindex='0' title='{markup(bar.hint)}'" if bar.hint else ""
    return f"<td class='{'number' if hint_attributes else 'amount'}'{hint_attributes}>{markup(bar.text)}</td>"


def _bar_note(bar: Bar) -> str:
    """What limits it, and how near it is to the roof of the machine."""
    if bar.least is None or not bar.share:
        return bar.note
    roof = f"{wording.percent(min(1.0, bar.least / bar.share))} of its roof"
    return f"{roof}, {bar.note}-bound" if bar.note else roof


def _bar_html(bar: Bar, longest: float) -> str:
    inside = ""
    if bar.least is not None and bar.share:
        inside = f"<div style='width:{100 * min(1.0, bar.least / bar.share):.3g}%;height:1em;background:{BLUE}'></div>"
    return f"<div style='width:{100 * bar.share / longest:.3g}%;height:1em;background:{SKY}'>{inside}</div>"
