"""The sections of several runs on a page: side by side, and one against the other."""

from __future__ import annotations

from collections.abc import Sequence

from sonda.analysis.comparison import Comparison
from sonda.analysis.summary import Summary
from sonda.report import figures
from sonda.report.comparison_tables import (
    layers_table,
    one_sided_phrases,
    sides_words,
    step_and_phases_table,
    verdict_words,
)
from sonda.report.figures import Figure
from sonda.report.labels import markup
from sonda.report.markup import panel, place_figure, table_html
from sonda.report.sections import Section
from sonda.report.summary_tables import side_by_side_table
from sonda.report.tree import LIMIT


def side_by_side_section(summaries: Sequence[Summary], names: Sequence[str]) -> Section:
    """Several runs: bars per phase and one column each."""
    drawn: list[Figure] = []
    table = side_by_side_table(summaries, names)
    html = "<h1>Side by side</h1>\n"
    by_cycles = figures.in_cycles(summaries)
    for title, cycles, place in (("Time", False, "bars"), ("Cycles", True, "cyclebars")):
        chosen = [index for index, one in enumerate(by_cycles) if one is cycles]
        if chosen:
            figure = figures.phase_bars([summaries[one] for one in chosen], [names[one] for one in chosen], cycles)
            html += panel(f"{title} per step by phase", place_figure(figure, place, drawn, "no run has phases"))
    html += panel("", table_html(table, "side"))
    return Section("Side by side", "together", html, tuple(drawn))


def comparison_section(comparison: Comparison) -> Section:
    """B against A: the sentence, then step, phases and layers of every part."""
    warnings = "".join(f'<p class="warning">{markup(warning)}</p>' for warning in comparison.warnings)
    notes = "".join(f'<p class="soft small">{markup(note)}</p>' for note in comparison.notes)
    pieces = [
        f'<h1>Comparison</h1><p class="soft">{markup(sides_words(comparison))}</p>',
        f'<div class="panel verdict"><p class="first">{markup(verdict_words(comparison))}</p>{warnings}{notes}</div>',
    ]
    for part in comparison.parts:
        title = "Step and phases" if len(comparison.parts) == 1 else f"{part.name}: step and phases"
        phrases = "".join(f'<p class="soft small">{markup(phrase)}</p>' for phrase in one_sided_phrases(part))
        pieces.append(panel(title, table_html(step_and_phases_table(part), "sortable") + phrases))
        if part.layers:
            table = table_html(layers_table(part.layers[:LIMIT], "layer"), "sortable")
            more = len(part.layers) - LIMIT
            left = f'<p class="soft small">{more:,} more layers are in sonda compare --json</p>' if more > 0 else ""
            pieces.append(panel("Layers", table.replace('class="scroll"', 'class="scroll tall"', 1) + left))
    return Section("Comparison", "comparison", "\n".join(pieces))
