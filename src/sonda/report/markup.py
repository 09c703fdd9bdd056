"""Tables, panels and places of figures as HTML, for page and notebook. Everything from outside is escaped here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sonda.report.labels import markup, script_data
from sonda.report.rows import classes as classes_of
from sonda.report.rows import copied_name, exact, packed
from sonda.report.table import Cell, Column, Table

LONG = 25
"""Rows beyond which a table scrolls inside of its panel."""
STATIC = 200
"""Rows that stand in the page as elements; of a longer table the script draws those in sight, from data."""


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
        f"<tbody>\n{body}\n</tbody></table></div>{_rest(table)}{notes}"
    )


def _rest(table: Table) -> str:
    """All rows as data, where they are too many for elements."""
    if len(table.rows) <= STATIC:
        return ""
    said = f"The first {STATIC} of {len(table.rows):,} rows; scripts, which are switched off here, show the others."
    return (
        f'<script type="application/json" class="rows">{script_data(packed(table))}</script>'
        f'<noscript><p class="soft small">{said}</p></noscript>'
    )


def _head(column: Column, index: int, cells: list[Cell]) -> str:
    align = "number" if column.right else "word"
    hint = f' title="{markup(column.hint)}"' if column.hint else ""
    copied = f' data-copied="{markup(copied_name(column, cells))}"' if exact(cells) else ""
    return f'<th scope="col" class="{align}" data-column="{index}"{hint}{copied}>{markup(column.name)}</th>'


def _field(cell: Cell, column: Column, index: int) -> str:
    align = "number" if column.right else "word"
    tone = f" {classes_of(cell)}".rstrip()
    given = {"order": cell.order, "unit": cell.unit or None, "low": cell.low, "high": cell.high}
    order = "".join(f' data-{name}="{markup(str(one))}"' for name, one in given.items() if one is not None)
    hint = f' title="{markup(cell.hint)}"' if cell.hint else ""
    element = "th scope='row'" if index == 0 else "td"
    close = "th" if index == 0 else "td"
    return f'<{element} class="{align}{tone}"{order}{hint}>{markup(cell.text)}</{close}>'


def _attributes(extra: dict[str, str]) -> str:
    return "".join(f' data-{name}="{markup(value)}"' for name, value in extra.items())


def panel(title: str, html: str, caption: str = "") -> str:
    """A box of a page with a heading and a line below it."""
    heading = f"<h3>{markup(title)}</h3>" if title else ""
    note = f'<p class="soft small">{markup(caption)}</p>' if caption else ""
    return f'<div class="panel">{heading}{note}{html}</div>'


def to_try(items: Iterable[str], how: str = "") -> str:
    """What to try, each of `items` as HTML, and `how`; '' without any."""
    said = f' <span class="soft small">({markup(how)})</span>' if how else ""
    listed = "".join(f"<li>{item}</li>" for item in items)
    return f'<p><strong>What to try</strong>{said}</p><ul class="plain">{listed}</ul>' if listed else ""


def answer_panel(sentence: str, remedy: str, warnings: Iterable[str]) -> str:
    """The top of an experiment: what was found, what to try, where there is something, and what makes it doubtful."""
    doubts = "".join(f'<p class="warning">{markup(one)}</p>' for one in warnings)
    first = f'<p class="first">{markup(sentence)}</p>'
    return f'<div class="panel verdict">{first}{to_try([markup(remedy)] if remedy else [])}{doubts}</div>'


def legend(meanings: Mapping[str, str]) -> str:
    """What names in a picture or table mean, which a reader opens, with whatever he points; '' without any."""
    items = "".join(f"<dt>{markup(name)}</dt><dd>{markup(said)}</dd>" for name, said in meanings.items())
    head = "<summary>What these names mean</summary>"
    return f'<details class="legend">{head}<dl class="words">{items}</dl></details>' if items else ""


def place_figure(
    figure: dict[str, Any] | None, place: str, drawn: list[dict[str, Any]], absent: str, table: Table | None = None
) -> str:
    """Where a figure is to be drawn, which is added to `drawn`, with the table behind it; or why there is none."""
    if figure is None:
        return f'<p class="soft">Nothing to draw: {markup(absent)}.</p>'
    drawn.append({"place": place, **figure})
    height = int(figure["layout"]["height"])
    return f'<div class="figure" id="{place}" style="min-height:{height}px"></div>' + behind(table)


def behind(table: Table | None) -> str:
    """The table behind a picture, which a reader opens; '' without one."""
    if table is None or not table.rows:
        return ""
    rows = f"{len(table.rows):,} row{'' if len(table.rows) == 1 else 's'}"
    inside = table_html(table, "sortable", tall=True)
    return f'<details class="behind"><summary>Table behind this picture, {rows}</summary>{inside}</details>'
