"""What a terminal shows: one function per screen, each returns the text to print."""

from __future__ import annotations

from dataclasses import replace

from sonda.analysis import wording
from sonda.analysis.doubts import ProbeSilent
from sonda.analysis.summary import PartSummary, Summary
from sonda.report import quantities
from sonda.report.blocks import Aside, Block, Gap, Heading, Items, Paragraph, TableBlock, paragraphs
from sonda.report.views.counters.command import outside_blocks
from sonda.report.views.counters.modelled import modelled_blocks
from sonda.report.views.counters.sensors import probed_blocks
from sonda.report.views.counters.system import second_blocks, system_blocks
from sonda.report.views.counters.topdown import counter_blocks
from sonda.report.views.device.overview import device_blocks
from sonda.report.views.energy import energy_blocks
from sonda.report.views.simulated import (
    choose_simulated,
    is_idle,
    simulated_layer_table,
    stack_tables,
)
from sonda.report.views.steps.code import code_blocks
from sonda.report.views.steps.pipeline import pipeline_blocks
from sonda.report.views.steps.program import program_blocks
from sonda.report.views.steps.ranks import node_blocks, rank_blocks, rank_phases_table
from sonda.report.views.steps.series import over_time_blocks
from sonda.report.views.steps.tables import (
    choose_layers,
    counter_phrases,
    layer_name,
    layer_table,
    phase_table,
)
from sonda.report.views.steps.training import training_blocks
from sonda.report.views.steps.tries import trials_blocks
from sonda.report.views.steps.verdict import advice
from sonda.report.words import in_words, verdict_sentences
from sonda.report.words.names import call_inference

SEPARATOR = " · "
MOST_LINES = 5
"""Lines of code that a region lists."""
WORTH_TELLING = 0.05
"""The part of a step outside layers from which on it is told."""


def summary_blocks(summary: Summary, layers: int = 10) -> list[Block]:
    """A run in tables: verdict, the whole program, phases, layers, counters, warnings; `layers` is how many are listed.
    Counters and sensors that are missing are asides."""
    seen = [part.name for part in summary.parts]
    notes, warnings = call_inference(summary.notes, seen), call_inference(summary.warnings, seen)
    summary = replace(summary, notes=notes, warnings=warnings)
    blocks: list[Block] = [*verdict_blocks(summary), *trials_blocks(summary.trials)]
    if summary.program is not None:
        blocks += program_blocks(summary.program)
    if summary.training is not None:
        blocks += training_blocks(summary.training)
    blocks += pipeline_blocks(summary)
    blocks += [*node_blocks(summary.target), *rank_blocks(summary.target)]
    for index, part in enumerate(summary.parts):
        if is_idle(summary, part):
            continue
        blocks.append(Gap())
        if len(summary.parts) > 1:
            blocks.append(Paragraph(_part_words(part), "first", hang=0))
        for number, table in enumerate(stack_tables(part) if part.simulated else (phase_table(part),)):
            if number:
                blocks.append(Gap())
            blocks.append(TableBlock(table))
        if part.ranks:
            blocks += [Gap(), TableBlock(rank_phases_table(part), reasons=False)]
        # Layers of validation are the same modules again; the first part is the one that the verdict speaks of.
        if index == 0 and layers > 0 and part.layers:
            blocks += [Gap(), *_layer_blocks(part, layers), *_other_layer_blocks(part, layers)]
        if index == 0 and layers > 0 and summary.code is not None:
            blocks += code_blocks(summary.code.part(part.name), min(layers, MOST_LINES))
        counted = [*counter_blocks(part, layers if index == 0 else 0), *system_blocks(part)]
        blocks += [Aside(counted), *over_time_blocks(part)]
    blocks += device_blocks(summary, layers)
    if summary.modelled is not None:
        blocks.append(Aside(modelled_blocks(summary.modelled, layers)))
    if summary.outside is not None:
        blocks.append(Aside(outside_blocks(summary.outside)))
    if summary.energy is not None:
        blocks += energy_blocks(summary.energy)
    if summary.second is not None:
        blocks.append(Aside(second_blocks(summary.second)))
    blocks += [*probed_blocks(summary.target.probed), *_closing_blocks(summary)]
    return blocks


def verdict_blocks(summary: Summary) -> list[Block]:
    """What ran on what, what limits it, and what to try."""
    words = [text for text in (summary.title, summary.subtitle) if text]
    if summary.status != "complete":
        words.append(summary.status)
    blocks: list[Block] = [
        Heading(SEPARATOR.join(words)),
        Gap(),
        *(Paragraph(text, "" if index else "first") for index, text in enumerate(verdict_sentences(summary))),
        advice(summary.verdicts),
    ]
    return blocks


def _simulated_layer_blocks(part: PartSummary, limit: int) -> list[Block]:
    blocks: list[Block] = []
    choice = choose_simulated(part, limit)
    rest = choice.total - len(choice.shown)
    title = f"layer ({len(choice.shown)} of {choice.total})" if rest else "layer"
    if choice.shown:
        blocks.append(TableBlock(simulated_layer_table(choice.shown, title)))
    if rest:
        blocks.append(
            Paragraph(f"not above: the other {rest:,} layers {quantities.whole(choice.rest)} cycles", "quiet")
        )
    return blocks


def _layer_blocks(part: PartSummary, limit: int) -> list[Block]:
    blocks: list[Block] = []
    if part.simulated is not None:
        blocks += _simulated_layer_blocks(part, limit)
        return blocks
    choice = choose_layers(part, limit)
    if not choice.shown:
        return blocks
    title = f"layer ({len(choice.shown)} of {choice.leaves})" if choice.leaves > len(choice.shown) else "layer"
    blocks.append(TableBlock(layer_table(choice.shown, title)))
    rest = []
    if choice.leaves > len(choice.shown):
        rest.append(f"the other {choice.leaves - len(choice.shown):,} layers {_time(choice.rest.value)}")
    if choice.containers.value:
        most = choice.container
        of_it = f", {_time(most.own.value)} of it in {layer_name(most)}" if most is not None and most.own.value else ""
        rest.append(f"code of modules around the layers {_time(choice.containers.value)}{of_it}")
    outside = sum(value.value or 0.0 for value in part.outside.values())
    if outside >= WORTH_TELLING * (part.step.value or 0.0):
        rest.append(f"in {wording.join(list(part.outside))} and in no layer {_time(outside)}")
    if rest:
        blocks.append(Paragraph("not above: " + SEPARATOR.join(rest), "quiet"))
    return blocks


def _rates(part: PartSummary) -> list[str]:
    """`44.9 samples/s`, and tokens where the workload has them."""
    rates = {"samples/s": part.samples_per_second, "tokens/s": part.tokens_per_second}
    rates |= {f"tokens/s in {name}": rate for name, rate in part.phase_tokens.items()}
    return [f"{quantities.number(rate.value)} {name} ({rate.source})" for name, rate in rates.items()
            if rate.value and quantities.known(rate)]  # fmt: skip


def _closing_blocks(summary: Summary) -> list[Block]:
    first = summary.parts[0] if summary.parts else None
    rates, counted = (_rates(first), counter_phrases(first)) if first is not None else ([], [])
    silent = [note for note in summary.notes if isinstance(note, ProbeSilent)]
    notes = [note for note in summary.notes if note not in silent]
    blocks: list[Block] = [Gap()]
    if rates:
        blocks.append(Items(rates, "", SEPARATOR))
    if counted:
        blocks.append(Aside([Items(counted, "", SEPARATOR)]))
    blocks += [*paragraphs(in_words(notes)), Aside(paragraphs(in_words(silent)))]
    return [*blocks, *paragraphs(in_words(summary.warnings), "warning")]


def _part_words(part: PartSummary) -> str:
    warmup = f" after {part.warmup:,} warm-up" if part.warmup else ""
    steps = f"{part.steps:,} step{'' if part.steps == 1 else 's'}{warmup}"
    pieces = [steps, f"{quantities.amount(part.step.value, part.step.unit)} each", quantities.spread(part.step)]
    return f"{part.name}: {', '.join(piece for piece in pieces if piece)}"


def _time(nanoseconds: float | None) -> str:
    return quantities.amount(nanoseconds, "ns")


def _other_layer_blocks(part: PartSummary, limit: int) -> list[Block]:
    """Layers that only ranks beside the critical one have: stages of a pipeline."""
    blocks: list[Block] = []
    for one in part.ranks:
        choice = choose_layers(replace(part, layers=one.layers), limit)
        if choice.shown:
            some = f" ({len(choice.shown)} of {choice.leaves})" if choice.leaves > len(choice.shown) else ""
            blocks += [Gap(), TableBlock(layer_table(choice.shown, f"layer of rank {one.rank}{some}"))]
    return blocks
