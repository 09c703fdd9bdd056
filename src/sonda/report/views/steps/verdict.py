"""The top of a run's section: what limits it, the numbers behind that, what to try, and the step in figures."""

from __future__ import annotations

from collections.abc import Iterable

from sonda.analysis.summary import PartSummary, Remedy, Summary, Value, Verdict
from sonda.analysis.wording import plural
from sonda.report import quantities
from sonda.report.blocks import (
    Advice,
    Block,
    Gap,
    Number,
    Numbers,
    OneLine,
    Panel,
    Paragraph,
    Suggestion,
    VerdictBlock,
    at_most,
    paragraphs,
)
from sonda.report.views.simulated import energy_cell, is_idle
from sonda.report.words import brief_doubts, describe, in_words, verdict_sentences
from sonda.report.words.names import first_part

NAMES = {
    "share": "part of the step", "of_peak": "of the peak", "of_bandwidth": "of the bandwidth",
    "of_time": "of their time", "operation_cost": "cost of an operation", "spent": "of their cycles",
    "busy": "GPU busy", "of_program": "part of the program", "steps_of_program": "steps' part of the program",
    "noise": "half of the interval of a step", "alone": "a step without other programs",
    "other_cpus": "used by other programs (100 % is a core)", "contention share": "threads wait for a core",
    "oversubscription share": "threads wait for a core",
}  # fmt: skip
"""What the numbers behind a verdict are called, where their own names say too little; behind a kind of verdict those
that mean something else there."""
MOST_ADVICE = 3
"""Remedies that are shown at once."""
RATIOS = ("IPC", "imbalance")
"""Numbers without unit that are no parts of a whole."""


def verdict_block(summary: Summary) -> VerdictBlock:
    """The first verdict with its numbers, what to try, and the first part's step."""
    blocks: list[Block] = []
    for verdict, sentence in zip(summary.verdicts[:1], verdict_sentences(summary), strict=False):
        blocks += [Paragraph(sentence, "first"), evidence(verdict)]
    blocks.append(at_most(advice(summary.verdicts), MOST_ADVICE))
    if summary.parts and not is_idle(summary, summary.parts[0]):
        blocks.append(_facts(summary.parts[0]))
    doubts = brief_doubts(summary.warnings, first_part(summary))
    blocks.append(OneLine(doubts, "warning") if doubts else Gap())
    return VerdictBlock(blocks, summary.verdicts[0].kind if summary.verdicts else "none")


def more_found(summary: Summary) -> list[Block]:
    """The other verdicts with their numbers, all that there is to try, and doubts in whole sentences."""
    blocks: list[Block] = []
    others = list(zip(summary.verdicts, verdict_sentences(summary), strict=True))[1:]
    for verdict, sentence in others:
        blocks += [Paragraph(sentence), evidence(verdict)]
    if len(advice(summary.verdicts).suggestions) > MOST_ADVICE:
        blocks.append(advice(summary.verdicts))
    warnings = in_words(summary.warnings)
    blocks += paragraphs(warnings, "warning")
    counts = [plural(len(others), "smaller limit")] if others else []
    counts += [plural(len(warnings), "doubt")] if warnings else []
    title = " and ".join(counts) or "All that there is to try"
    return [Panel(title, blocks)] if blocks else []


def evidence(verdict: Verdict) -> Numbers:
    """The numbers that a verdict rests on."""
    return Numbers([
        _number(_name(verdict.kind, name), _shown(name, value), value)
        for name, value in verdict.evidence.items() if quantities.known(value)
    ])  # fmt: skip


def _name(kind: str, name: str) -> str:
    return NAMES.get(f"{kind} {name}") or NAMES.get(name) or name.replace("_", " ")


def advice(verdicts: Iterable[Verdict]) -> Advice:
    """What to try, each remedy once."""
    remedies = list(dict.fromkeys(remedy for verdict in verdicts for remedy in verdict.remedies))
    untried = any(one.options and one.speedup is None for one in remedies)
    how = "options of sonda run; with --try Sonda tries them and says what each brings" if untried else ""
    return Advice([_suggestion(one) for one in remedies], how)


def _suggestion(remedy: Remedy) -> Suggestion:
    result = quantities.factor(remedy.speedup) if remedy.speedup is not None else ""
    return Suggestion(describe(remedy.advice), " ".join(remedy.options), result)


def _shown(name: str, value: Value) -> str:
    if value.unit == "1" and value.source != "counted" and name not in RATIOS:
        return f"{quantities.percent(value.value)} %"
    return quantities.amount(value.value, value.unit)


def _facts(part: PartSummary) -> Numbers:
    """A step's time, rates and, of a simulated machine, cycles and energy."""
    values = [("time of a step", part.step, quantities.spread(part.step)), ("samples/s", part.samples_per_second, "")]
    values.append(("tokens/s", part.tokens_per_second, ""))
    facts = [_fact(name, value, note) for name, value, note in values if quantities.known(value)]
    if part.simulated is not None:
        cycles, energy = part.simulated.cycles, energy_cell(part.simulated.energy)
        whole = _number("cycles of a step", quantities.whole(cycles.value or 0.0), cycles)
        spent = Number("energy of a step", energy.text, energy.hint, estimated=energy.estimated)
        return Numbers([whole, *facts, spent], "facts")
    after = f"after {part.warmup:,} warm-up" if part.warmup else ""
    hint = "steps that the numbers are medians of, counted"
    return Numbers([*facts, Number("timed steps", f"{part.steps:,}", hint, after)], "facts")


def _fact(name: str, value: Value, note: str) -> Number:
    unit = value.unit if value.unit == "ns" else "1"
    return _number(name, quantities.amount(value.value, unit), value, note)


def _number(name: str, text: str, value: Value, note: str = "") -> Number:
    return Number(name, text, quantities.provenance(value), note, quantities.is_guess(value))
