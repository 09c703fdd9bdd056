"""A run of steps at a glance: what limits it, what to try, the phases in a bar, and what takes most time in it."""

from __future__ import annotations

from collections.abc import Sequence

from sonda.analysis.code.summary import OTHER, CodeLine
from sonda.analysis.doubts import EndedEarly, RunFailed, SeveralProcesses
from sonda.analysis.energy.findings import NoEnergy
from sonda.analysis.findings import Finding, Remark
from sonda.analysis.rules.limit_findings import OfProgram
from sonda.analysis.summary import LayerRow, PartSummary, RankPhases, Summary, Verdict
from sonda.report import quantities
from sonda.report.blocks import (
    Bar,
    Bars,
    Block,
    Gap,
    Heading,
    OneLine,
    Paragraph,
    at_most,
    stack_parts,
)
from sonda.report.views.counters.sensors import probed_line
from sonda.report.views.device.kernels import OF_ACTIVITIES, kernel_bars
from sonda.report.views.simulated import choose_simulated, energy_cell, is_idle
from sonda.report.views.steps.code import SMALLEST
from sonda.report.views.steps.program import stage_name
from sonda.report.views.steps.tables import choose_layers, layer_name
from sonda.report.views.steps.training import short_sentence
from sonda.report.views.steps.tries import apply_sentences, name_remedy
from sonda.report.views.steps.verdict import advice
from sonda.report.words import brief_doubts, describe, verdict_sentences
from sonda.report.words.names import first_part, name_part, short_expression

MOST_VERDICTS, MOST_ADVICE, MOST_RANKS = 1, 3, 4
FULL_BAR = 0.2
"""The share of the step from which on a layer's bar may fill the room: a small one must look small."""
WHOLE = 0.9
"""Medians of phases that add up to less of the median step were slow in different steps."""
UNSTEADY = "slow in some steps only"


def glance_blocks(summary: Summary, rows: int) -> list[Block]:
    """The first screen; `rows` is how many layers and lines it has."""
    blocks: list[Block] = [headline(summary), Gap(), *found_blocks(summary), *_tried_blocks(summary)]
    blocks += [Paragraph(describe(note)) for note in summary.notes if isinstance(note, SeveralProcesses)]
    if summary.training is not None:
        blocks.append(Paragraph(short_sentence(summary.training)))
    if summary.energy is not None and not isinstance(summary.energy.finding, NoEnergy):
        blocks.append(Paragraph(describe(summary.energy.finding)))
    blocks += [Gap(), *time_blocks(summary, rows)]
    return [*blocks, *probed_line(summary.target.probed), *doubt_line(summary)]


def headline(summary: Summary) -> Heading:
    """`MLP, inference · Xeon, 8 cores · 20 steps`, and the status where it is not complete."""
    status = summary.status if summary.status != "complete" else ""
    return Heading(summary.title, " · ".join(text for text in (summary.subtitle, status) if text))


def found_blocks(summary: Summary) -> list[Block]:
    """The first verdict and what to try; of a program whose steps are a minor part also the first of a step."""
    most = MOST_VERDICTS + speaks_of_program(summary.verdicts)
    sentences = verdict_sentences(summary)[:most]
    shown: list[Block] = [Paragraph(text, "" if place else "first") for place, text in enumerate(sentences)]
    advised = MOST_ADVICE - (summary.training is not None) - (summary.energy is not None)
    return [*shown, at_most(advice(summary.verdicts[:most]), advised)]


def doubt_line(summary: Summary) -> list[Block]:
    """All warnings in one line, and that energy was asked for and not read."""
    doubts = brief_doubts([*_endings(summary), *summary.warnings], first_part(summary))
    if summary.energy is not None and isinstance(summary.energy.finding, NoEnergy):
        doubts.append("no energy was read: sonda doctor says why")
    return [Gap(), *([OneLine(doubts, "warning")] if doubts else [])]


def _endings(summary: Summary) -> list[Finding]:
    """How a program ended that did not end well, where no warning says so."""
    warned = any(isinstance(warning, EndedEarly | RunFailed) for warning in summary.warnings)
    if summary.status == "complete" or warned:
        return []
    return [note for note in summary.notes if isinstance(note, Remark)]


def speaks_of_program(verdicts: Sequence[Verdict]) -> bool:
    """Whether the first verdict is about the whole program."""
    return bool(verdicts) and isinstance(verdicts[0].finding, OfProgram)


def time_blocks(summary: Summary, rows: int) -> list[Block]:
    """Where the time goes: stages of the program where these are what matters, then phases, ranks, layers and lines."""
    blocks: list[Block] = []
    of_program = speaks_of_program(summary.verdicts) or not summary.parts
    if summary.program is not None and of_program:
        program = summary.program
        whole = f"the program, {quantities.amount(program.whole.value, program.whole.unit)}"
        blocks.append(stack_parts(whole, [(stage_name(stage, program), stage.share) for stage in program.stages]))
    part = summary.parts[0] if summary.parts else None
    if part is None or is_idle(summary, part):
        return blocks
    if part.simulated is not None:
        return [*blocks, *_simulated_blocks(part, rows)]
    ranks = part.ranks[:MOST_RANKS]
    layers = _slowest(summary, part, max(1, rows - len(ranks)) if rows else 0)
    blocks += [*_phase_bar(summary, part), *_rank_bars(ranks)]
    if not rows or speaks_of_program(summary.verdicts):
        return blocks
    if not layers and summary.device_work is not None:
        return [*blocks, Bars(kernel_bars(summary.device_work, rows), paths=False, head=OF_ACTIVITIES)]
    return [*blocks, *([Gap()] if ranks and layers else []), *([Bars(layers, full=FULL_BAR)] if layers else [])]


def _phase_bar(summary: Summary, part: PartSummary) -> list[Block]:
    shares = [(row.name, row.cost.share) for row in part.phases if row.cost.share == row.cost.share]
    total = sum(share for _, share in shares)
    if not quantities.known(part.step) or total <= 0:
        return []
    if total < WHOLE:
        shares.append((UNSTEADY, 1 - total))
    rates = {"samples/s": part.samples_per_second, "tokens/s": part.tokens_per_second}
    shown = [f"{quantities.number(rate.value)} {unit}" for unit, rate in rates.items()
             if rate.value and quantities.known(rate)]  # fmt: skip
    name = name_part(part.name, [known.name for known in summary.parts])
    step = f"{quantities.amount(part.step.value, part.step.unit)} a step"
    return [stack_parts(", ".join([name, step, *shown[:1]]), shares)]


def _slowest(summary: Summary, part: PartSummary, rows: int) -> list[Bar]:
    return [_bar(row, share) for share, row in choose_slowest(summary, part, rows)]


def choose_slowest(summary: Summary, part: PartSummary, rows: int) -> list[tuple[float, LayerRow | CodeLine]]:
    """Layers, and lines of code in no layer, that take most of the step, each behind its share."""
    layers = [row for row in choose_layers(part, rows).shown if row.cost.share == row.cost.share]
    lines = _lines(summary, part)
    timed: list[tuple[float, LayerRow | CodeLine]] = [(row.cost.share, row) for row in layers]
    timed += [(line.share.value or 0.0, line) for line in lines]
    timed.sort(key=lambda pair: -pair[0])
    return timed[:rows]


def _lines(summary: Summary, part: PartSummary) -> list[CodeLine]:
    code = summary.code.part(part.name) if summary.code is not None else None
    regions = [region for region in (code.regions if code is not None else ()) if region.name in (OTHER, "data")]
    return [line for region in regions for line in region.lines if (line.share.value or 0.0) >= SMALLEST]


def _bar(row: LayerRow | CodeLine, share: float) -> Bar:
    text = f"{quantities.percent(share, 1)} %"
    if isinstance(row, CodeLine):
        return Bar(row.place.name, share, text, short_expression(row.text or row.called))
    roof = row.cost.roof.value
    least = None if roof is None else share * roof
    hint = f"{text} of the step, derived; {quantities.provenance(row.cost.time)}"
    return Bar(layer_name(row), share, text, row.name, row.cost.bound, least, hint)


def _rank_bars(ranks: Sequence[RankPhases]) -> list[Block]:
    """What each rank works in a step, and how long it waits for others."""
    longest = max((rank.step.value or 0.0 for rank in ranks), default=0.0)
    if not longest:
        return []
    bars = []
    for rank in ranks:
        step, work = rank.step.value or 0.0, rank.work.value or 0.0
        waits = f"waits {quantities.percent(max(0.0, 1 - work / step))} %" if step else ""
        note = f"{waits}, works longest" if rank.critical else waits
        text = f"{quantities.amount(work, 'ns')} of work"
        bars.append(Bar(f"rank {rank.rank}", work / longest, text, rank.device, note))
    return [Bars(bars)]


def _simulated_blocks(part: PartSummary, rows: int) -> list[Block]:
    """The cycles of a step by what they are spent on, and the layers that take most of them."""
    step = part.simulated
    if step is None or not step.cycles.value:
        return []
    whole = f"{quantities.whole(step.cycles.value)} cycles"
    if step.energy.value is not None:
        whole += f", {energy_cell(step.energy).text}"
    stack = [(name, (value.value or 0.0) / step.cycles.value) for name, value in step.stack.items()]
    bars = []
    for row in choose_simulated(part, rows).shown:
        layer = row.own_simulated
        if layer is not None:
            text = f"{quantities.percent(layer.share, 1)} %"
            bars.append(Bar(layer_name(row), layer.share, text, row.name, layer.bound))
    return [stack_parts(whole, stack), *([Bars(bars, full=FULL_BAR)] if bars else [])]


def _tried_blocks(summary: Summary) -> list[Block]:
    """Of a program: what each tried remedy brought, and how to apply the best one."""
    trials = summary.trials
    if trials is None:
        return []
    if trials.refused:
        return [Paragraph(f"No remedy was tried: {trials.refused}.", "quiet")]
    tried = [f"{name_remedy(one.name, one.value)} {quantities.factor(one.speedup)}" for one in trials.remedies]
    how = apply_sentences(trials)[:1]
    return [*([OneLine([f"Tried: {tried[0]}", *tried[1:]])] if tried else []), *(Paragraph(text) for text in how)]
