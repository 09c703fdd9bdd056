"""What a run shows in a notebook: verdict and tables, no scripts, nothing to load."""

from __future__ import annotations

from dataclasses import replace

from sonda.analysis.exploration import Exploration
from sonda.analysis.summary import Summary
from sonda.report.exploration import count_lines, front_table, front_to_show
from sonda.report.labels import markup
from sonda.report.markup import table_html
from sonda.report.probed import probed_table
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
.sonda thead th { font-weight: 600; opacity: .7; }
.sonda .soft, .sonda .reasons, .sonda .quiet { opacity: .7; }
.sonda .reasons { list-style: none; padding: 0; font-size: 12px; }
.sonda .scroll { overflow-x: auto; }
</style>"""


def html_fragment(summary: Summary, layers: int = LAYERS) -> str:
    """A fragment for `_repr_html_`: title, verdicts, what to try, phases and the layers that took most time."""
    pieces = [
        f"<div><b>{markup(summary.title)}</b> <span class='soft'>{markup(summary.subtitle)}</span></div>",
        *(f"<div>{markup(verdict.sentence)}</div>" for verdict in summary.verdicts),
    ]
    remedies = dict.fromkeys(remedy for verdict in summary.verdicts for remedy in verdict.remedies)
    if remedies:
        pieces.append(f"<div>Try: {markup('   ·   '.join(remedy_words(remedy) for remedy in remedies))}</div>")
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
    return f'{_STYLE}<div class="sonda">{"".join(pieces)}</div>'


def layers_fragment(table: Table) -> str:
    """A table of layers, the first ones where there are many."""
    more = f"<div class='soft'>and {len(table.rows) - MOST_ROWS:,} more</div>" if len(table.rows) > MOST_ROWS else ""
    shown = replace(table, rows=table.rows[:MOST_ROWS], attributes=table.attributes[:MOST_ROWS])
    return f'{_STYLE}<div class="sonda">{table_html(shown)}{more}</div>'


def exploration_fragment(found: Exploration, points: int = POINTS) -> str:
    """A fragment for `_repr_html_` of an exploration: the sentence, points of the front, counts."""
    pieces = [
        f"<div><b>{markup(found.title)}</b> <span class='soft'>{markup(found.subtitle)}</span></div>",
        f"<div>{markup(found.sentence)}</div>",
    ]
    shown = front_to_show(found, points)
    if shown:
        pieces.append(table_html(front_table(found, shown)))
    pieces += [f"<div>{markup(line)}</div>" for line in count_lines(found)]
    pieces += [f"<div class='soft'>{markup(note)}</div>" for note in found.notes]
    pieces.append(f"<div class='soft'>run {markup(found.run)}</div>")
    return f'{_STYLE}<div class="sonda">{"".join(pieces)}</div>'
