"""A screen: blocks laid out as text for a terminal, a pipe or a narrow window."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TextIO, assert_never

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
    Numbers,
    OneLine,
    Panel,
    Paragraph,
    StackedBar,
    TableBlock,
    Tree,
    VerdictBlock,
)
from sonda.report.labels import bind_units, plain, release_units, shorten
from sonda.report.table import LAST, Table

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from sonda.report.blocks import Tone

PIPE_WIDTH, HEIGHT = 120, 25
"""Columns where nobody says how wide the reader's window is; how high it is makes no difference."""

GAP = 3
INDENT = 2
LEAST_WIDTH = 20
LEAST_PATH, LEAST_WORDS, LEAST_SENTENCE = 16, 32, 28
"""Cells that paths, other words and sentences are left where there is little room."""

LEAST_BAR, MOST_BAR, MOST_NAME = 10, 30, 40
"""Cells of a bar, and of the name before it."""
_FILLS = "█▒▓░▚="  # as many as `blocks.MOST_PARTS`
_FILL_STYLES = ("blue", "cyan", "green", "yellow", "magenta", "dim")
"""Fills tell the parts of a bar apart where there is no colour."""
_EIGHTHS = " ▏▎▍▌▋▊▉"

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
                case VerdictBlock(inside) | Aside(inside):
                    self.show(inside)
                case StackedBar(whole, bars):
                    self.stacked_bar(whole, bars)
                case Bars():
                    self.bars(block)
                case OneLine(items, tone):
                    self.one_line(items, tone)
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

    def one_line(self, items: Sequence[str], tone: Tone = "") -> None:
        """Add as many items as one line holds, and how many more there are. The first is cut where it alone is too
        long."""
        mark = "! " if tone == "warning" else ""
        room = max(LEAST_WIDTH, self.width - INDENT - _cells(mark))
        texts = [plain(item) for item in items]
        shown = len(texts)
        while shown > 1 and _cells(_joined(texts, shown)) > room:
            shown -= 1
        if texts:
            rest = f" · {len(texts) - shown} more" if shown < len(texts) else ""
            first = shorten(texts[0], room - _cells(rest), False)
            text = _joined([first, *texts[1:]], shown)
            self.line(mark + text, _TONES[tone], INDENT)

    def stacked_bar(self, whole: str, bars: Sequence[Bar]) -> None:
        """Add a bar that is made of these, behind what it is of, and below it what each fill stands for."""
        from rich.text import Text

        if not bars:
            return
        lead = f"{plain(whole)}   " if whole else ""
        room = max(LEAST_BAR, self.width - INDENT - _cells(lead))
        line = Text(" " * INDENT + lead)
        # There are as many fills as a bar may have parts.
        for length, fill, style in zip(_lengths(bars, room), _FILLS, _FILL_STYLES, strict=False):
            line.append(fill * length, style=style)
        self._print(line)
        self.items("", [f"{fill} {bar.name} {bar.text}" for bar, fill in zip(bars, _FILLS, strict=False)], "   ")

    def bars(self, block: Bars) -> None:
        """Add a line for each bar; where there is little room names are cut, and what is beside them goes."""
        from rich.text import Text

        for name, about, bar, text, note in _fit_bars(block, self.width - INDENT):
            line = Text(" " * INDENT + name)
            line.append(about, style="dim")
            line.append(bar, style="cyan")
            line.append(text)
            line.append(note, style=_STYLES.get(note.strip(), ""))
            self._print(line)

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


def _fit_bars(block: Bars, room: int) -> list[tuple[str, str, str, str, str]]:
    """Name, what is beside it, bar, number and note of each line, with the blanks before them, in `room` cells."""
    bars = block.bars
    if not bars:
        return []
    texts = [plain(bar.text) for bar in bars]
    room -= GAP + LEAST_BAR + GAP + max(map(_cells, texts))  # what is left for names and words
    notes = [plain(bar.note) for bar in bars]
    if any(notes):
        most = max(LEAST_PATH, room - min(LEAST_PATH, max(_cells(bar.name) for bar in bars)) - GAP)
        notes = [shorten(note, most, False) for note in notes]
        room -= GAP + max(map(_cells, notes))
    abouts = [plain(bar.about) for bar in bars]
    if any(abouts):
        fits = room - GAP - max(map(_cells, abouts)) >= LEAST_PATH
        abouts = abouts if fits else [""] * len(bars)
        room -= GAP + max(map(_cells, abouts)) if fits else 0
    names = [shorten(plain(bar.name), max(LEAST_PATH, min(MOST_NAME, room)), block.paths) for bar in bars]
    room -= max(map(_cells, names))
    length = min(MOST_BAR, LEAST_BAR + max(0, room))
    longest = max(block.full, *(bar.share for bar in bars)) or 1.0
    drawn = [_blocks(bar.share / longest * length) for bar in bars]
    columns = [_aligned(names), _aligned(abouts, GAP), _aligned(drawn, GAP, least=length), _aligned(texts, GAP, True)]
    return list(zip(*columns, [" " * GAP + note if note else "" for note in notes], strict=True))


def _aligned(texts: Sequence[str], gap: int = 0, right: bool = False, least: int = 0) -> list[str]:
    """These texts as wide as the widest, behind a gap; where all are empty, nothing."""
    widest = max(least, *map(_cells, texts)) if len(texts) > 1 else max(least, _cells(texts[0]))
    if not widest:
        return list(texts)
    blanks = [" " * (widest - _cells(text)) for text in texts]
    return [" " * gap + (blank + text if right else text + blank) for text, blank in zip(texts, blanks, strict=True)]


def _joined(items: Sequence[str], shown: int) -> str:
    """The first of these in a line, and how many more there are."""
    more = [f"{len(items) - shown} more"] if shown < len(items) else []
    return " · ".join([*items[:shown], *more])


def _lengths(bars: Sequence[Bar], room: int) -> list[int]:
    """Cells of each part of a bar that is so long. What is there has at least one."""
    total = sum(bar.share for bar in bars) or 1.0
    lengths = [max(1, round(bar.share / total * room)) for bar in bars]
    lengths[lengths.index(max(lengths))] += room - sum(lengths)
    return lengths


def _blocks(cells: float) -> str:
    """A bar of so many cells, to an eighth."""
    eighths = max(1, round(cells * 8)) if cells > 0 else 0
    return "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")
