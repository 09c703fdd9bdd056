"""A screen: blocks laid out as text for a terminal, a pipe or a narrow window."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, TextIO, assert_never

from sonda.report.blocks import (
    Advice,
    Block,
    Facts,
    FigureBlock,
    Fold,
    Gap,
    Heading,
    Items,
    Legend,
    Numbers,
    Panel,
    Paragraph,
    TableBlock,
    Tree,
    VerdictBlock,
)
from sonda.report.labels import bind_units, plain, release_units, shorten
from sonda.report.table import LAST, Table

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

PIPE_WIDTH, HEIGHT = 120, 25
"""Columns where nobody says how wide the reader's window is; how high it is makes no difference."""

GAP = 3
INDENT = 2
LEAST_WIDTH = 20
LEAST_PATH, LEAST_WORDS, LEAST_SENTENCE = 16, 32, 28
"""Cells that paths, other words and sentences are left where there is little room."""

_STYLES = {
    "good": "green", "bad": "red", "strong": "yellow", "quiet": "dim", "head": "dim",
    "compute": "cyan", "memory": "yellow", "overhead": "red", "input": "magenta", "transfer": "blue", "host": "green",
}  # fmt: skip
_TONES = {
    "": "", "first": "bold", "quiet": "dim", "soft": "dim", "warning": "yellow", "remark": "yellow", "bad": "red",
    "first bad": "bold red", "small": "",
}  # fmt: skip
"""Styles of paragraphs."""


def render(blocks: Iterable[Block], width: int | None = None, color: bool | None = None) -> str:
    """These blocks as text; `width` and `color` are those of `Screen`."""
    screen = Screen(width, color)
    screen.show(blocks)
    return screen.text()


class Screen:
    """Collects lines and tables; `text()` lays them out.

    `width` None is the terminal's, or 120 columns into a pipe. Colours appear on a terminal only, and never under
    NO_COLOR or on a dumb one. Every text is literal: nothing in it is read as markup, and no character of it acts
    instead of being drawn, wherever the text comes from.
    """

    def __init__(self, width: int | None = None, color: bool | None = None) -> None:
        from rich.console import Console

        terminal = (sys.stdout.isatty() if color is None else color) and os.environ.get("TERM") != "dumb"
        self._plain = not terminal
        self._buffer = io.StringIO()
        self.width = width_to_fill(width)
        self._console = Console(
            file=self._buffer, force_terminal=terminal, markup=False, highlight=False, emoji=False,
            legacy_windows=False, color_system="standard" if terminal else None,
            # rich would read COLUMNS and LINES itself, and have widths of its own for Jupyter
            width=self.width, height=HEIGHT, force_jupyter=False,
        )  # fmt: skip

    def show(self, blocks: Iterable[Block]) -> None:
        """Add blocks of any kind."""
        for block in blocks:
            match block:
                case Gap():
                    self.line()
                case Heading(text, detail):
                    self.line(" · ".join(word for word in (text, detail) if word), "bold")
                case Paragraph(text, tone, indent, hang):
                    self.line(f"! {text}" if tone == "warning" else text, _TONES[tone], indent, hang)
                case Items(items, lead, separator):
                    self.items(lead, list(items), separator)
                case Advice(suggestions):
                    if suggestions:
                        self.items("Try: ", [suggestion.words for suggestion in suggestions])
                case TableBlock(table, indent, reasons):
                    self.table(table, indent, reasons)
                case FigureBlock(_, _, table):
                    if table is not None:
                        self.table(table)
                case Tree(table=nodes):
                    self.show([nodes])
                case Numbers(numbers):
                    if numbers:
                        self.items(
                            "", [f"{number.name} {number.text} {number.note}".rstrip() for number in numbers], " · "
                        )
                case Facts(title, facts):
                    self.line(title, "bold", INDENT)
                    for name, text in facts:
                        self.line(f"{name}: {text}", "dim", INDENT, 2)
                case Legend(meanings):
                    for name, meaning in meanings.items():
                        self.line(f"{name}: {meaning}", "dim", INDENT, 2)
                case Fold(title, inside):
                    self.line(title, "bold", INDENT)
                    self.show(inside)
                case Panel(title, inside, caption):
                    self.line()
                    self.line(title, "bold", INDENT)
                    self.show(inside)
                    if caption:
                        self.line(caption, "dim", INDENT, 2)
                case VerdictBlock(inside):
                    self.show(inside)
                case _:
                    assert_never(block)

    def line(self, text: str = "", style: str = "", indent: int = 0, hang: int = 0) -> None:
        """Add a paragraph; lines after the first are indented by `hang` more."""
        from rich.text import Text

        if not text:
            self._print(Text(""))
            return
        # One line needs no room for the indent of the next.
        more = hang if _cells(text) > self.width - indent else 0
        room = max(10, self.width - indent - more)
        for index, piece in enumerate(self._fold(plain(text), room, style)):
            self._print(Text(" " * (indent + (hang if index else 0))) + piece)

    def items(self, lead: str, items: list[str], separator: str = "   ·   ") -> None:
        """Add items behind `lead`; a line breaks between items only."""
        room = max(10, self.width - INDENT - _cells(lead))
        rows = [""]
        for item in items:
            joined = f"{rows[-1]}{separator}{item}" if rows[-1] else item
            if rows[-1] and _cells(joined) > room:
                rows.append(item)
            else:
                rows[-1] = joined
        for index, row in enumerate(rows):
            self.line((" " * _cells(lead) if index else lead) + row, "", INDENT, _cells(lead) + 2)

    def table(self, table: Table, indent: int = INDENT, reasons: bool = True) -> None:
        """Add a table. Columns that do not fit are left out and named below, and so are reasons of missing numbers."""
        if not table.columns:
            return  # of a study without axes nothing was measured
        shown, dropped = fit_columns(_clean_table(table), self.width - indent)
        # Where nothing can be left out, or not enough, the columns stand in bands one below the other.
        for number, band in enumerate(_bands(shown, self.width - indent)):
            if number:
                self.line()
            self._rows(band, indent)
        if dropped:
            self.line(f"left out at this width: {', '.join(dropped)}", "dim", indent, 2)
        if reasons:
            for reason, names in shown.reasons().items():
                self.line(f"– {', '.join(name or 'value' for name in names)}: {reason}", "dim", indent, 2)

    def _rows(self, shown: Table, indent: int) -> None:
        widths = _widths(shown)
        self._print(_row([column.name for column in shown.columns], ["head"] * len(widths), shown, widths, indent))
        room = self.width - indent - sum(widths[:-1]) - GAP * (len(widths) - 1)
        for cells in shown.rows:
            tones = [cell.tone for cell in cells]
            texts = [cell.text for cell in cells]
            folds = shown.columns[-1].wrap
            lines = [line.plain for line in self._fold(texts[-1], max(LEAST_PATH, room))] if folds else texts[-1:]
            self._print(_row([*texts[:-1], lines[0]], tones, shown, widths, indent))
            for line in lines[1:]:
                self._print(_row([""] * (len(texts) - 1) + [line], tones, shown, widths, indent))

    def _fold(self, text: str, room: int, style: str = "") -> list[Text]:
        """The text in lines of at most `room` cells, none of which ends between a number and its unit."""
        from rich.text import Text

        lines = list(Text(bind_units(text), style=style).wrap(self._console, room))
        for line in lines:
            line.plain = release_units(line.plain)
        return lines

    def text(self) -> str:
        """Everything so far, without blanks at the ends of lines."""
        lines = self._buffer.getvalue().split("\n")
        return "\n".join(line.rstrip() if self._plain else line for line in lines).rstrip("\n")

    def _print(self, renderable: RenderableType) -> None:
        self._console.print(renderable, soft_wrap=True)


def width_to_fill(width: int | None = None) -> int:
    """The columns to lay text out for: `width`, or the terminal's, or 120 into a pipe."""
    return max(LEAST_WIDTH, width or width_of(sys.stdout) or PIPE_WIDTH)


def width_of(stream: TextIO) -> int | None:
    """Columns of the terminal behind this stream. The variable COLUMNS comes first; None where there is no terminal."""
    try:
        columns = int(os.environ.get("COLUMNS", ""))
    except ValueError:
        columns = 0
    if columns > 0:
        return columns
    try:
        return os.get_terminal_size(stream.fileno()).columns or None
    except (OSError, ValueError):
        return None


def fit_columns(table: Table, room: int) -> tuple[Table, list[str]]:
    """The table with as many columns as fit into `room`, and the names of those left out."""
    dropped: list[str] = []
    order = sorted((column for column in table.columns if column.keep < LAST), key=lambda column: column.keep)
    shown = table
    while _least(shown) > room and order:
        dropped.append(order.pop(0).name)
        shown = table.drop_columns(set(dropped))
    shown = _narrow(shown, room, LEAST_WORDS)
    if any(_width(band) > room for band in _bands(shown, room)):
        shown = _narrow(shown, room, LEAST_PATH)
    return shown, list(dict.fromkeys(column.name for column in table.columns if column.name in dropped))


def _bands(table: Table, room: int) -> list[Table]:
    """The table in bands of as many columns as fit side by side. Each band repeats the first column."""
    if table.columns[-1].wrap or _width(table) <= room:
        return [table]
    bands: list[list[int]] = [[]]
    for index in range(1, len(table.columns)):
        if bands[-1] and _width(_columns(table, [0, *bands[-1], index])) > room:
            bands.append([])
        bands[-1].append(index)
    return [_columns(table, [0, *band]) for band in bands]


def _clean_table(table: Table) -> Table:
    """The same table with names and texts in which no character acts instead of being drawn."""
    columns = tuple(replace(column, name=plain(column.name)) for column in table.columns)
    rows = tuple(tuple(replace(cell, text=plain(cell.text)) for cell in row) for row in table.rows)
    return replace(table, columns=columns, rows=rows)


def _columns(table: Table, chosen: list[int]) -> Table:
    rows = tuple(tuple(row[index] for index in chosen) for row in table.rows)
    return replace(table, columns=tuple(table.columns[index] for index in chosen), rows=rows)


def _width(table: Table) -> int:
    """Cells that the table takes. A column of sentences counts with the least width that can be read."""
    widths = _widths(table)
    if table.columns[-1].wrap:
        widths[-1] = min(widths[-1], LEAST_SENTENCE)
    return sum(widths) + GAP * (len(widths) - 1)


def _least(table: Table) -> int:
    """Cells that the table needs once its words are cut to `LEAST_WORDS`."""
    return _width(table) - sum(_slacks(table, LEAST_WORDS))


def _slacks(table: Table, words: int) -> list[int]:
    """By how many cells each column may be narrowed. Words keep `words` cells; numbers are never cut."""
    slacks = []
    for width, column in zip(_widths(table), table.columns, strict=True):
        least = max(LEAST_PATH if column.path else words, _cells(column.name))
        slacks.append(0 if column.right or column.wrap else max(0, width - least))
    return slacks


def _narrow(table: Table, room: int, words: int) -> Table:
    """Cut the column with the most slack, again and again, until the table fits. Paths lose their beginning, words
    their end; words keep `words` cells."""
    excess = _width(table) - room
    while excess > 0 and any(slacks := _slacks(table, words)):
        target = max(range(len(slacks)), key=lambda index: slacks[index])
        less = min(excess, slacks[target])
        table, excess = _cut(table, target, _widths(table)[target] - less), excess - less
    return table


def _cut(table: Table, target: int, room: int) -> Table:
    """The table with the words of one column in so many cells."""
    front = table.columns[target].path
    rows = tuple(
        tuple(
            replace(cell, text=shorten(cell.text, room, front)) if index == target else cell
            for index, cell in enumerate(row)
        )
        for row in table.rows
    )
    return replace(table, rows=rows)


def _widths(table: Table) -> list[int]:
    return [
        max([_cells(column.name), *(_cells(row[index].text) for row in table.rows)])
        for index, column in enumerate(table.columns)
    ]


def _cells(text: str) -> int:
    """Columns of a terminal that a text takes: a Chinese character has two."""
    from rich.cells import cell_len

    return cell_len(text)


def _row(texts: list[str], tones: list[str], table: Table, widths: list[int], indent: int) -> Text:
    from rich.text import Text

    line = Text(" " * indent)
    for index, (text, tone, column, width) in enumerate(zip(texts, tones, table.columns, widths, strict=True)):
        gap = " " * GAP if index else ""
        blanks = " " * max(0, width - _cells(text))
        line.append(gap + (blanks if column.right else ""))
        line.append(text, style=_STYLES.get(tone, ""))
        # Behind the last column blanks would run over the edge, where a sentence is folded.
        if not column.right and index < len(texts) - 1:
            line.append(blanks)
    return line
