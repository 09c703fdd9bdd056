"""A run of steps on a page: its panels, each with the table behind its figure."""

from __future__ import annotations

from collections.abc import Sequence

from sonda.analysis.counters.callgrind import ModelledSummary
from sonda.analysis.counters.summary import Outside
from sonda.analysis.summary import PartSummary, Summary
from sonda.report import figures, quantities
from sonda.report.blocks import (
    FEW_ROWS,
    Bars,
    Block,
    FigureBlock,
    Heading,
    Items,
    Legend,
    Panel,
    Paragraph,
    TableBlock,
    paragraphs,
)
from sonda.report.table import Cell
from sonda.report.views.counters.command import outside_figure, outside_table, totals_words
from sonda.report.views.counters.modelled import budget_caption, budget_figure, titled_tables
from sonda.report.views.counters.sensors import PROBED_MEANS, probed_table
from sonda.report.views.counters.system import second_table, system_table
from sonda.report.views.counters.topdown import (
    MOST_LAYERS,
    category_meanings,
    choose_counted,
    counter_sentences,
    counter_table,
    topdown_bars,
    topdown_icicle,
    topdown_layer_table,
    topdown_map,
    topdown_over_steps,
    topdown_tables,
)
from sonda.report.views.device.overview import device_panels
from sonda.report.views.simulated import choose_simulated, is_idle, simulated_layer_table, stack_tables
from sonda.report.views.steps.code import code_panels, outside_panels
from sonda.report.views.steps.figure_data import series_table, stack_table, steps_table, stretches_table
from sonda.report.views.steps.glance import time_blocks
from sonda.report.views.steps.layers import CYCLES_TREE, SIMULATED, layer_tree, layers_panel, roofline_panel
from sonda.report.views.steps.pipeline import PIPELINE_MEANS, pipeline_table, slowest_words
from sonda.report.views.steps.program import PROGRAM_MEANS, program_table
from sonda.report.views.steps.series import over_time_caption, over_time_figure
from sonda.report.views.steps.tables import counter_phrases, phase_table
from sonda.report.views.steps.training import training_panel
from sonda.report.views.steps.tries import trials_panels
from sonda.report.views.steps.verdict import more_found, verdict_block
from sonda.report.words import describe

PHASES = "A step is one batch through the network. Times are medians over the timed steps."
SLOTS = (
    "Every cycle the processor has room for several operations, its slots. Retiring is useful work; the rest is lost "
    "to waiting for instructions (frontend), for data or arithmetic units (backend), or to wrong guesses (speculation)."
)


def run_panels(summary: Summary) -> list[Block]:
    """One run: what limits it, what to try and where the time goes, open; then its parts, a picture each, to open."""
    status = "" if summary.status == "complete" else f" · {summary.status}"
    blocks: list[Block] = [
        Heading(summary.title, f"{summary.subtitle}{status} · run {summary.run}"), verdict_block(summary)
    ]  # fmt: skip
    times = time_blocks(summary, FEW_ROWS)
    if times:
        simulated = bool(summary.parts) and summary.parts[0].simulated is not None
        title = "Where the cycles go" if simulated else "Where the time goes"
        blocks.append(Panel(title, times, _roof_caption(times), opened=True))
    if summary.training is not None:
        blocks.append(training_panel(summary.training))
    blocks += more_found(summary)
    blocks += trials_panels(summary.trials)
    if summary.program is not None:
        table = TableBlock(program_table(summary.program))
        blocks.append(Panel("Where the program's time went", [table], PROGRAM_MEANS))
        blocks += outside_panels(summary.code)
    for pipeline in summary.pipelines:
        stages: list[Block] = [Paragraph(slowest_words(pipeline, summary)), TableBlock(pipeline_table(pipeline))]
        blocks.append(Panel(f"Stages of tf.data, {pipeline.part}", stages, PIPELINE_MEANS))
    for number, part in enumerate(summary.parts):
        if not is_idle(summary, part):
            blocks += [Heading(part.name, level=2)] if len(summary.parts) > 1 else []
            panels = _simulated_panels if part.simulated is not None else _part_panels
            blocks += panels(part, summary, f"p{number}")
    if summary.modelled is not None:
        blocks += _modelled_panels(summary.modelled)
    if summary.outside is not None:
        blocks.append(_outside_panel(summary.outside))
    if summary.second is not None:
        table = TableBlock(second_table(summary.second), look="")
        blocks.append(Panel("Second sources", [table], "; ".join(map(describe, summary.second.findings))))
    probed = probed_table(summary.target.probed)
    if probed is not None:
        blocks.append(Panel("Read meanwhile", [TableBlock(probed)], PROBED_MEANS))
    return blocks


def _roof_caption(blocks: Sequence[Block]) -> str:
    """What the dark part of a bar is, where a bar has one."""
    bars = [bar for block in blocks if isinstance(block, Bars) for bar in block.bars]
    return "Dark: what a layer would take at the roof of this machine." if any(bar.least for bar in bars) else ""


def _part_panels(part: PartSummary, summary: Summary, place: str) -> list[Block]:
    steps = figures.phases_over_steps(part)
    over_steps: list[Block] = []
    if steps is not None:
        picture = FigureBlock(steps, f"{place}steps", steps_table(part))
        over_steps = [Panel("Phases over steps", [picture], figures.steps_caption(part))]
    phases: list[Block] = [TableBlock(phase_table(part), look="phases sortable"), Items(counter_phrases(part))]
    return [
        *layers_panel(part, place),
        *roofline_panel(part, summary, place),
        *over_steps,
        Panel("Phases of a step", phases, PHASES),
        *code_panels(summary.code.part(part.name) if summary.code is not None else None),
        *_topdown_panels(part, place),
        *device_panels(part, summary, place),
        *_counter_panels(part, place),
    ]


def _counter_panels(part: PartSummary, place: str) -> list[Block]:
    """What was read over time, and counted per step by the processor and by the operating system."""
    blocks: list[Block] = []
    if part.over_time is not None and part.over_time.series:
        series = part.over_time.series
        picture = FigureBlock(
            over_time_figure(part), f"{place}time", series_table(series, "step"), "no step was seen"
        )  # fmt: skip
        caption = over_time_caption(series, part.phase_steps, "of each step")
        blocks.append(
            Panel("Over time", [*paragraphs(map(describe, part.over_time.findings), "remark"), picture], caption)
        )
    if part.counted is not None:
        counted: list[Block] = [TableBlock(counter_table(part.counted)), Items(counter_sentences(part))]
        blocks.append(Panel("Hardware counters per step", counted))
    if part.system is not None and part.system.shown:
        remarks = paragraphs(map(describe, part.system.remarks), "remark")
        blocks.append(Panel("What the operating system counted", [*remarks, TableBlock(system_table(part.system))]))
    return blocks


def _outside_panel(outside: Outside) -> Panel:
    totals = Paragraph(totals_words(outside))
    if not outside.stretches:
        return Panel("The whole program", [totals])

    def moment(at: int) -> Cell:
        return Cell(quantities.rounded(outside.starts[at - 1] / 1e9, 3), outside.starts[at - 1])

    table = series_table(outside.series, "from, s", moment)
    picture = FigureBlock(outside_figure(outside), "whole", table, "nothing could be counted")
    caption = f"Counted from outside. {over_time_caption(outside.series, outside.phases, 'of the first process')}"
    blocks = [
        totals,
        *paragraphs(map(describe, outside.findings), "remark"),
        picture,
        TableBlock(outside_table(outside)),
    ]
    return Panel("The whole program over time", blocks, caption.strip())


def _modelled_panels(modelled: ModelledSummary) -> list[Block]:
    """Counters of one step under an emulator, and the cycles that they allow."""
    blocks: list[Block] = []
    for number, (title, table) in enumerate(titled_tables(modelled)):
        figure = budget_figure(modelled) if number == 0 else None
        picture = [FigureBlock(figure, "budget")] if figure is not None else []
        caption = budget_caption(figure) if figure is not None else ""
        blocks.append(Panel(title, [*picture, TableBlock(table)], caption))
    notes = paragraphs(map(describe, modelled.findings))
    return [*blocks, *([Panel("How the step was modelled", notes)] if notes else [])]


def _topdown_panels(part: PartSummary, place: str) -> list[Block]:
    topdown = part.topdown
    if topdown is None:
        return []
    title = "Top-Down, approximate" if topdown.definition.approximate else "Top-Down"
    absent = "level 1 was not counted"
    layers = choose_counted(part, len(part.layers))
    by_layer = topdown_layer_table(part, layers, "layer") if layers else None
    return [
        Panel(
            title,
            [
                FigureBlock(topdown_bars(topdown), f"{place}phases", absent=absent),
                FigureBlock(topdown_icicle(topdown), f"{place}levels", absent=absent),
                Legend(category_meanings(topdown)),
                *(TableBlock(table) for table in topdown_tables(topdown)),
            ],
            f"{SLOTS} {topdown.definition.name}: shares of {topdown.definition.of}.",
        ),
        Panel(
            f"{title} over steps",
            [FigureBlock(topdown_over_steps(topdown), f"{place}slots", stretches_table(topdown), absent)],
        ),
        Panel(
            f"{title} by layer",
            [FigureBlock(topdown_map(topdown, layers), f"{place}map", by_layer, "layers were not read")],
            "Forward and backward together, without the layers inside; most time first. The lighter, the more of the "
            f"{topdown.definition.of}.{figures.largest_of(MOST_LAYERS, len(layers), 'layers', 'time')}",
        ),
    ]


def _simulated_panels(part: PartSummary, summary: Summary, place: str) -> list[Block]:
    """Cycles in place of times: there is one step, and nothing about it varies."""
    choice = choose_simulated(part, len(part.layers))
    blocks: list[Block] = [Panel("Cycles of a step", [TableBlock(table) for table in stack_tables(part)])]
    if choice.shown:
        table = TableBlock(simulated_layer_table(choice.shown, "layer"), tall=True, place=f"{place}layers")
        blocks.append(Panel("Layers", [layer_tree(part, place, table)], CYCLES_TREE))
    stacks = FigureBlock(
        figures.cycle_stacks(choice.shown), f"{place}stack", stack_table(choice.shown), "no layer ran on an engine"
    )
    caption = "Layers by the cycles of their own, most first."
    caption += figures.largest_of(figures.MOST_STACKS, len(choice.shown), "layers", "cycles")
    blocks.append(Panel("What the cycles of layers are spent on", [stacks], caption))
    # Without a clock in the description there are cycles and no times.
    return [*blocks, *roofline_panel(part, summary, place, SIMULATED)]
