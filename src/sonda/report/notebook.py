"""What a run shows in a notebook: verdict and tables, no scripts, nothing to load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sonda.analysis.exploration import Exploration
from sonda.analysis.summary import Summary
from sonda.report.exploration import count_lines, front_table, front_to_show
from sonda.report.labels import markup
from sonda.report.markup import table_html
from sonda.report.probed import probed_table
from sonda.report.program import program_table
from sonda.report.screen import Screen
from sonda.report.simulated_tables import choose_simulated, is_idle, simulated_layer_table, stack_tables
from sonda.report.summary_tables import choose_layers, layer_table, phase_table
from sonda.report.table import Table
from sonda.report.terminal import remedy_words

LAYERS = 10
POINTS = 10
MOST_ROWS = 100
"""Of a table that was asked for by itself."""

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


class Sheet(Screen):
    """What a screen would show, as a fragment for a notebook: `show_…` of a report writes to either."""

    def __init__(self) -> None:
        self._pieces: list[str] = []

    def line(self, text: str = "", style: str = "", indent: int = 0, hang: int = 0) -> None:
        if text:
            kind = {"bold": " class='first'", "dim": " class='soft'"}.get(style, "")
            self._pieces.append(f"<div{kind}>{markup(text)}</div>")

    def items(self, lead: str, items: list[str], separator: str = "   ·   ") -> None:
        self.line(lead + separator.join(items))

    def table(self, table: Table, indent: int = 2, reasons: bool = True) -> None:
        self._pieces.append(_first_rows(table))

    def text(self) -> str:
        return _framed(self._pieces)


def html_fragment(summary: Summary, layers: int = LAYERS) -> str:
    """A fragment for `_repr_html_`: title, verdicts, what to try, phases and the layers that took most time."""
    pieces = [
        f"<div><b>{markup(summary.title)}</b> <span class='soft'>{markup(summary.subtitle)}</span></div>",
        *(f"<div>{markup(verdict.sentence)}</div>" for verdict in summary.verdicts),
    ]
    remedies = dict.fromkeys(remedy for verdict in summary.verdicts for remedy in verdict.remedies)
    if remedies:
        pieces.append(f"<div>Try: {markup('   ·   '.join(remedy_words(remedy) for remedy in remedies))}</div>")
    if summary.program is not None:
        pieces.append(table_html(program_table(summary.program)))
    for index, part in enumerate(summary.parts):
        if is_idle(summary, part):
            continue
        if len(summary.parts) > 1:
            pieces.append(f"<div><b>{markup(part.name)}</b></div>")
        if part.simulated is not None:
            chosen = choose_simulated(part, layers).shown
            tables = [*stack_tables(part), simulated_layer_table(chosen, "layer")]
            pieces += [table_html(table) for table in tables]
            continue
        pieces.append(table_html(phase_table(part)))
        choice = choose_layers(part, layers)
        if index == 0 and choice.shown:
            title = f"layer ({len(choice.shown)} of {choice.leaves})"
            pieces.append(table_html(layer_table(choice.shown, title)))
    probed = probed_table(summary.target)
    if probed is not None:
        pieces.append(table_html(probed))
    pieces += [f"<div class='soft'>{markup(note)}</div>" for note in summary.notes]
    pieces += [f"<div>! {markup(warning)}</div>" for warning in summary.warnings]
    pieces.append(f"<div class='soft'>{markup(summary.status)} · run {markup(summary.run)}</div>")
    return _framed(pieces)


def layers_fragment(table: Table) -> str:
    """A table of layers, the first ones where there are many."""
    return _framed([_first_rows(table)])


def _first_rows(table: Table) -> str:
    """All rows of a table, or the first ones and how many more there are: a notebook is kept with what it shows."""
    more = f"<div class='soft'>and {len(table.rows) - MOST_ROWS:,} more</div>" if len(table.rows) > MOST_ROWS else ""
    shown = replace(table, rows=table.rows[:MOST_ROWS], attributes=table.attributes[:MOST_ROWS])
    return table_html(shown) + more


def _framed(pieces: Sequence[str]) -> str:
    return f'{_STYLE}<div class="sonda">{"".join(pieces)}</div>'


def exploration_fragment(found: Exploration) -> str:
    """A fragment for `_repr_html_` of an exploration: the sentence, points of the front, counts."""
    pieces = [
        f"<div><b>{markup(found.title)}</b> <span class='soft'>{markup(found.subtitle)}</span></div>",
        f"<div>{markup(found.sentence)}</div>",
    ]
    shown = front_to_show(found, POINTS)
    if shown:
        pieces.append(table_html(front_table(found, shown)))
    pieces += [f"<div>{markup(line)}</div>" for line in count_lines(found)]
    pieces += [f"<div class='soft'>{markup(note)}</div>" for note in found.notes]
    pieces.append(f"<div class='soft'>run {markup(found.run)}</div>")
    return _framed(pieces)
