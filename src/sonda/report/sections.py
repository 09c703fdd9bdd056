"""The section of one run on a page: HTML and the figures it places."""

from __future__ import annotations

from dataclasses import dataclass

from sonda.analysis.counted_summary import Outside, SecondSources
from sonda.analysis.summary import PartSummary, Summary
from sonda.report import figures
from sonda.report.behind import series_table, stack_table, steps_table, stretches_table
from sonda.report.device_panels import device_panels
from sonda.report.figures import Figure
from sonda.report.labels import markup
from sonda.report.layer_panels import SIMULATED, TREE, layers_panel, roofline_panel, tree_figure
from sonda.report.markup import legend, panel, place_figure, table_html
from sonda.report.modelled_figures import budget_caption, budget_figure
from sonda.report.modelled_tables import titled_tables
from sonda.report.outside import outside_figure, outside_table, totals_words
from sonda.report.over_time import over_time_caption, over_time_figure
from sonda.report.probed import PROBED_MEANS, probed_table
from sonda.report.program import PROGRAM_MEANS, program_table
from sonda.report.simulated_tables import choose_simulated, is_idle, simulated_layer_table, stack_tables
from sonda.report.summary_tables import counter_phrases, phase_table
from sonda.report.system_tables import second_table, system_table
from sonda.report.table import Cell
from sonda.report.topdown_figures import MOST_LAYERS, topdown_bars, topdown_icicle, topdown_map, topdown_over_steps
from sonda.report.topdown_tables import (
    categories_meant,
    choose_counted,
    counter_sentences,
    counter_table,
    topdown_layer_table,
    topdown_tables,
)
from sonda.report.verdict_panel import verdict_panel

PHASES = "A step is one batch through the network. Times are medians over the timed steps."
SLOTS = (
    "Every cycle the processor has room for several operations, its slots. Retiring is useful work; the rest is lost "
    "to waiting for instructions (frontend), for data or arithmetic units (backend), or to wrong guesses (speculation)."
)


@dataclass(frozen=True)
class Section:
    name: str
    place: str
    """Element id."""
    html: str
    figures: tuple[Figure, ...] = ()
    words: tuple[tuple[str, str], ...] = ()
    """What a reader may not know, with its meaning; a page says each once."""


def run_section(summary: Summary, name: str, index: int, alone: bool) -> Section:
    """One run: verdict, then its parts with their figures, each with the table behind it."""
    place = f"run{index}"
    drawn: list[Figure] = []
    level = "h1" if alone else "h2"
    status = "" if summary.status == "complete" else f" · {summary.status}"
    pieces = [
        f"<{level}>{markup(summary.title)}</{level}>",
        f'<p class="soft">{markup(summary.subtitle + status)} · run {markup(summary.run)}</p>',
        verdict_panel(summary),
    ]
    if summary.program is not None:
        table = table_html(program_table(summary.program), "sortable")
        pieces.append(panel("Where the program's time went", table, PROGRAM_MEANS))
    for number, part in enumerate(summary.parts):
        pieces.append(_part(part, summary, f"{place}p{number}", drawn, named=len(summary.parts) > 1))
    if summary.modelled is not None:
        pieces.append(_modelled_panels(summary, place, drawn))
    if summary.outside is not None:
        pieces.append(_outside_panel(summary.outside, place, drawn))
    if summary.second is not None:
        pieces.append(_second_panel(summary.second))
    probed = probed_table(summary.target)
    if probed is not None:
        pieces.append(panel("Probes of other packages", table_html(probed, "sortable"), PROBED_MEANS))
    label = name if name == summary.run else f"{name} ({summary.run})"
    return Section(label, place, "\n".join(pieces), tuple(drawn))


def _part(part: PartSummary, summary: Summary, place: str, drawn: list[Figure], named: bool) -> str:
    if is_idle(summary, part):
        return ""
    heading = f"<h2>{markup(part.name)}</h2>" if named else ""
    if part.simulated is not None:
        return "\n".join([heading, _simulated_part(part, summary, place, drawn)])
    counters = "".join(f"<li>{markup(phrase)}</li>" for phrase in counter_phrases(part))
    listed = f'<ul class="plain soft small">{counters}</ul>' if counters else ""
    steps = figures.phases_over_steps(part)
    behind = steps_table(part) if steps is not None else None
    pieces = [
        heading,
        panel("Phases of a step", table_html(phase_table(part), "phases sortable") + listed, PHASES),
        panel(
            "Phases over steps", place_figure(steps, f"{place}steps", drawn, "no step was seen", behind),
            figures.steps_caption(part) if steps is not None else "",
        ),
        layers_panel(part, place, drawn),
        roofline_panel(part, summary, place, drawn),
        _topdown_panels(part, place, drawn),
        device_panels(part, summary, place, drawn),
        _over_time_panel(part, place, drawn),
        _counters_panel(part),
        _system_panel(part),
    ]  # fmt: skip
    return "\n".join(piece for piece in pieces if piece)


def _over_time_panel(part: PartSummary, place: str, drawn: list[Figure]) -> str:
    if part.over_time is None or not part.over_time.series:
        return ""
    said = "".join(f'<p class="warning">{markup(sentence)}</p>' for sentence in part.over_time.sentences)
    table = series_table(part.over_time.series, "step")
    figure = place_figure(over_time_figure(part), f"{place}time", drawn, "no step was seen", table)
    return panel("Over time", said + figure, over_time_caption(part.over_time.series, part.phase_steps, "of each step"))


def _outside_panel(outside: Outside, place: str, drawn: list[Figure]) -> str:
    said = "".join(f'<p class="warning">{markup(sentence)}</p>' for sentence in outside.sentences)
    totals = f"<p>{markup(totals_words(outside))}</p>"
    if not outside.stretches:
        return panel("The whole program", totals)

    def moment(at: int) -> Cell:
        return Cell(f"{outside.starts[at - 1] / 1e9:,.3f}", outside.starts[at - 1])

    table = series_table(outside.series, "from, s", moment)
    figure = place_figure(outside_figure(outside), f"{place}whole", drawn, "nothing could be counted", table)
    return panel(
        "The whole program over time",
        totals + said + figure + table_html(outside_table(outside), "sortable"),
        f"Counted from outside. {over_time_caption(outside.series, outside.phases, 'of the first process')}".strip(),
    )


def _modelled_panels(summary: Summary, place: str, drawn: list[Figure]) -> str:
    """Counters of one step under an emulator, and the cycles that they allow."""
    assert summary.modelled is not None
    pieces = []
    for number, (title, table) in enumerate(titled_tables(summary.modelled)):
        figure = budget_figure(summary.modelled) if number == 0 else None
        html = place_figure(figure, f"{place}budget", drawn, "") if figure is not None else ""
        caption = budget_caption(figure) if figure is not None else ""
        pieces.append(panel(title, html + table_html(table, "sortable"), caption))
    pieces += [f'<p class="soft small">{markup(one)}</p>' for one in summary.modelled.sentences]
    return "\n".join(pieces)


def _counters_panel(part: PartSummary) -> str:
    if part.counted is None:
        return ""
    notes = "".join(f"<li>{markup(sentence)}</li>" for sentence in counter_sentences(part))
    listed = f'<ul class="plain soft small">{notes}</ul>' if notes else ""
    return panel("Hardware counters per step", table_html(counter_table(part.counted), "sortable") + listed)


def _system_panel(part: PartSummary) -> str:
    if part.system is None or not part.system.shown:
        return ""
    said = "".join(f'<p class="warning">{markup(remark)}</p>' for remark in part.system.remarks)
    return panel("What the operating system counted", said + table_html(system_table(part.system), "sortable"))


def _second_panel(second: SecondSources) -> str:
    return panel("Second sources", table_html(second_table(second)), "; ".join(second.sentences))


def _topdown_panels(part: PartSummary, place: str, drawn: list[Figure]) -> str:
    topdown = part.topdown
    if topdown is None:
        return ""
    title = "Top-Down, approximate" if topdown.definition.approximate else "Top-Down"
    tables = "".join(table_html(table, "sortable") for table in topdown_tables(topdown))
    absent = "level 1 was not counted"
    bars = place_figure(topdown_bars(topdown), f"{place}phases", drawn, absent)
    icicle = place_figure(topdown_icicle(topdown), f"{place}levels", drawn, absent)
    meant = legend(categories_meant(topdown))
    layers = choose_counted(part, len(part.layers))
    by_layer = topdown_layer_table(part, layers, "layer") if layers else None
    pieces = [
        panel(
            title,
            bars + icicle + meant + tables,
            f"{SLOTS} {topdown.definition.name}: shares of {topdown.definition.of}.",
        ),
        panel(
            f"{title} over steps",
            place_figure(topdown_over_steps(topdown), f"{place}slots", drawn, absent, stretches_table(topdown)),
        ),
        panel(
            f"{title} by layer",
            place_figure(topdown_map(topdown, layers), f"{place}map", drawn, "layers were not read", by_layer),
            "Forward and backward together, without the layers inside; most time first. The lighter, the more of the "
            f"{topdown.definition.of}.{figures.largest_of(MOST_LAYERS, len(layers), 'layers', 'time')}",
        ),
    ]
    return "\n".join(pieces)


def _simulated_part(part: PartSummary, summary: Summary, place: str, drawn: list[Figure]) -> str:
    """Cycles in place of times: there is one step, and nothing about it varies."""
    choice = choose_simulated(part, len(part.layers))
    at = {id(row): index for index, row in enumerate(choice.shown)}
    places = {index: at[id(row)] for index, row in enumerate(part.layers) if id(row) in at}
    table = f"{place}layers"
    listed = table_html(simulated_layer_table(choice.shown, "layer"), "sortable", tall=True).replace(
        "<table ", f'<table id="{table}" ', 1
    )
    pieces = [
        panel("Cycles of a step", "".join(table_html(table, "sortable") for table in stack_tables(part))),
        panel(
            "Layers",
            tree_figure(part, place, drawn, table, places)
            + listed,
            TREE.replace("what limits it", "what most of its cycles are spent on"),
        ) if choice.shown else "",
        panel(
            "What the cycles of layers are spent on",
            place_figure(
                figures.cycle_stacks(choice.shown), f"{place}stack", drawn, "no layer ran on an engine",
                stack_table(choice.shown),
            ),
            "Layers by the cycles of their own, most first."
            + figures.largest_of(figures.MOST_STACKS, len(choice.shown), "layers", "cycles"),
        ),
        # Without a clock in the description there are cycles and no times.
        roofline_panel(part, summary, place, drawn, SIMULATED) if figures.roofline_rows(part.layers) else "",
    ]  # fmt: skip
    return "\n".join(piece for piece in pieces if piece)
