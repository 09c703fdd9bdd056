"""The sections of several runs on a page: side by side, and one against the other."""

from __future__ import annotations

from collections.abc import Sequence

from sonda.analysis.compare import compare
from sonda.analysis.comparison import Comparison
from sonda.analysis.summary import Summary
from sonda.record.errors import SondaError
from sonda.record.run import Run
from sonda.report import against_first, figures
from sonda.report.against_first import Against
from sonda.report.behind import phases_table
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

Group = tuple[str, tuple[int, ...]]
"""A name, and the places of its runs among all."""


def side_by_side_section(
    summaries: Sequence[Summary],
    names: Sequence[str],
    runs: Sequence[Run | None] = (),
    comparison: Comparison | None = None,
    groups: Sequence[str] = (),
) -> Section:
    """Several runs: how each compares with the first, bars per phase, and one column each.

    `runs`, in the order of the summaries, are what differences are judged by; without them none is. Runs of one of the
    `groups` are processes of the same configuration, which are judged together. The `comparison` of two of them, where
    there is one, has its own section, and only greys what is not significant here.
    """
    drawn: list[Figure] = []
    (first, _), *rest = together = _together(names, groups)
    if comparison is not None:
        others = [Against(rest[0][0], comparison, columns=rest[0][1])]
    else:
        others = _others(together, runs)
    said = against_first.verdict_words(first, others)
    told = (f'<p class="first">{markup(said)}</p>' if said else "") + _reasons(others)
    html = "<h1>Side by side</h1>\n" + (f'<div class="panel verdict">{told}</div>' if told else "")
    by_cycles = figures.in_cycles(summaries)
    for title, cycles, place in (("Time", False, "bars"), ("Cycles", True, "cyclebars")):
        chosen = [index for index, one in enumerate(by_cycles) if one is cycles]
        if chosen:
            figure = figures.phase_bars([summaries[one] for one in chosen], [names[one] for one in chosen], cycles)
            behind = phases_table([summaries[one] for one in chosen], [names[one] for one in chosen], cycles)
            picture = place_figure(figure, place, drawn, "no run has phases", behind if figure is not None else None)
            html += panel(f"{title} per step by phase", picture)
    table = against_first.greyed(side_by_side_table(summaries, names), others)
    html += panel("All runs", table_html(table, "side"), GREYED if said else "")
    for title, judged in (("Step and phases", against_first.phases_against(first, others)),
                          ("Layers", against_first.layers_against(first, others))):  # fmt: skip
        if judged is not None and comparison is None:
            listed = table_html(judged, "sortable", tall=True)
            html += panel(f"{title} against {first}", listed, GREYED)
    return Section("Side by side", "together", html, tuple(drawn))


GREYED = "What does not differ significantly from the first run, with 95 %, is grey."


def _together(names: Sequence[str], groups: Sequence[str]) -> list[Group]:
    """The groups with the places of their runs; without groups every run is one."""
    if not groups:
        return [(name, (place,)) for place, name in enumerate(names)]
    return [
        (name, tuple(place for place, group in enumerate(groups) if group == name)) for name in dict.fromkeys(groups)
    ]


def _others(together: Sequence[Group], runs: Sequence[Run | None]) -> list[Against]:
    """Every later group of runs against the first, as far as they can be compared."""
    sides = [[run for place in places if runs and (run := runs[place]) is not None] for _, places in together]
    if not sides[0]:
        return []
    found = []
    for (name, places), side in zip(together[1:], sides[1:], strict=True):
        try:
            found.append(Against(name, compare(sides[0], side) if side else None, columns=places))
        except SondaError as error:
            found.append(Against(name, None, error.cause))
    return found


def _reasons(others: Sequence[Against]) -> str:
    lines = [f"{one.name} cannot be compared: {one.reason}" for one in others if one.reason]
    return "".join(f'<p class="soft small">{markup(line)}</p>' for line in lines)


def comparison_section(comparison: Comparison, names: Sequence[str] = ()) -> Section:
    """B against A, called by these `names`: the sentence, then step, phases and layers of every part."""
    warnings = "".join(f'<p class="warning">{markup(warning)}</p>' for warning in comparison.warnings)
    notes = "".join(f'<p class="soft small">{markup(note)}</p>' for note in comparison.notes)
    pieces = [
        f'<h1>Comparison</h1><p class="soft">{markup(sides_words(comparison, names))}</p>',
        f'<div class="panel verdict"><p class="first">{markup(verdict_words(comparison))}</p>{warnings}{notes}</div>',
    ]
    grey = "Equal cycles are grey." if comparison.exact else "What is not significant is grey."
    for part in comparison.parts:
        title = "Step and phases" if len(comparison.parts) == 1 else f"{part.name}: step and phases"
        phrases = "".join(f'<p class="soft small">{markup(phrase)}</p>' for phrase in one_sided_phrases(part))
        pieces.append(panel(title, table_html(step_and_phases_table(part), "sortable") + phrases, grey))
        if part.layers:
            table = table_html(layers_table(part.layers[:LIMIT], "layer"), "sortable", tall=True)
            more = len(part.layers) - LIMIT
            left = f'<p class="soft small">{more:,} more layers are in sonda compare --json</p>' if more > 0 else ""
            pieces.append(panel("Layers", table + left, grey))
    return Section("Comparison", "comparison", "\n".join(pieces))
