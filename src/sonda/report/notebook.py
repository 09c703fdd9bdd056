"""What a run shows in a notebook: verdict and tables, no scripts, nothing to load."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import assert_never

from sonda.report.blocks import (
    Advice,
    Aside,
    Bars,
    Block,
    Facts,
    FigureBlock,
    Fold,
    Gap,
    Heading,
    Items,
    Legend,
    Numbers,
    OneLine,
    Panel,
    Paragraph,
    StackedBar,
    TableBlock,
    Tree,
    VerdictBlock,
)
from sonda.report.labels import markup
from sonda.report.markup import bars_html, stacked_bar_html, table_html
from sonda.report.table import Table

MOST_ROWS = 100
"""Rows of a table that are shown."""

_STYLE = """<style>
.sonda { font: 14px/1.45 system-ui, sans-serif; max-width: 1000px; }
.sonda table { border-collapse: collapse; margin: 8px 0; font-variant-numeric: tabular-nums; }
.sonda th, .sonda td { padding: 2px 10px; text-align: left; white-space: nowrap; }
.sonda tr { border-bottom: 1px solid rgba(128,128,128,.25); }
.sonda .number { text-align: right; }
.sonda .first { font-weight: 600; }
.sonda thead th { font-weight: 600; opacity: .7; }
.sonda .soft, .sonda .reasons, .sonda .quiet { opacity: .7; }
.sonda .reasons { list-style: none; padding: 0; font-size: 12px; }
.sonda .scroll { overflow-x: auto; }
.sonda .estimated { background: repeating-linear-gradient(135deg, rgba(128,128,128,.3) 0 2px, transparent 2px 6px); }
</style>"""
_TONES = {"first": "first", "first bad": "first", "quiet": "soft", "soft": "soft"}
"""Classes of paragraphs by their tone."""


def render_fragment(blocks: Iterable[Block]) -> str:
    """These blocks as a fragment for `_repr_html_`."""
    return _frame([_block_html(block) for block in blocks])


def _block_html(block: Block) -> str:
    match block:
        case Gap():
            return ""
        case Heading(text, detail):
            more = f" <span class='soft'>{markup(detail)}</span>" if detail else ""
            return f"<div><b>{markup(text)}</b>{more}</div>"
        case Paragraph(text, tone):
            return _line(f"! {text}" if tone == "warning" else text, _TONES.get(tone, ""))
        case Items(items, lead, separator):
            return _line(lead + separator.join(items))
        case Advice(suggestions):
            return (
                _line("Try: " + "   ·   ".join(suggestion.words for suggestion in suggestions)) if suggestions else ""
            )
        case TableBlock(table):
            return _first_rows(table)
        case FigureBlock(_, _, table):
            return _first_rows(table) if table is not None else ""
        case Tree(table=nodes):
            return _block_html(nodes)
        case Numbers(numbers):
            return _line(" · ".join(f"{number.name} {number.text} {number.note}".rstrip() for number in numbers))
        case Facts(title, facts):
            return _line(title, "first") + "".join(_line(f"{name}: {text}", "soft") for name, text in facts)
        case Legend(meanings):
            return "".join(_line(f"{name}: {meaning}", "soft") for name, meaning in meanings.items())
        case Fold(title, inside):
            return _line(title, "first") + "".join(map(_block_html, inside))
        case Panel(title, inside, caption):
            below = _line(caption, "soft") if caption else ""
            return _line(title, "first") + "".join(map(_block_html, inside)) + below
        case VerdictBlock(inside) | Aside(inside):
            return "".join(map(_block_html, inside))
        case OneLine(items, tone):
            return _block_html(Paragraph(" · ".join(items), tone))
        case StackedBar(whole, bars):
            return stacked_bar_html(whole, bars)
        case Bars():
            return bars_html(block)
        case _:
            assert_never(block)


def _line(text: str, kind: str = "") -> str:
    attribute = f" class='{kind}'" if kind else ""
    return f"<div{attribute}>{markup(text)}</div>" if text else ""


def _first_rows(table: Table) -> str:
    """All rows of a table, or the first ones and how many more there are: a notebook is kept with what it shows."""
    more = f"<div class='soft'>and {len(table.rows) - MOST_ROWS:,} more</div>" if len(table.rows) > MOST_ROWS else ""
    shown = replace(table, rows=table.rows[:MOST_ROWS], attributes=table.attributes[:MOST_ROWS])
    return table_html(shown) + more


def _frame(pieces: Sequence[str]) -> str:
    return f'{_STYLE}<div class="sonda">{"".join(pieces)}</div>'
