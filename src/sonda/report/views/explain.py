"""A run explained: verdicts with their evidence, places and remedies, and nothing else; as text, and as a document so
small that an assistant reads it whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sonda.analysis.code.summary import CodeLine
from sonda.analysis.run_summary import summarise
from sonda.analysis.summary import CausePlace, LayerRow, PartSummary, Remedy, Summary, Value, Verdict
from sonda.analysis.traces.summary import summarise_trace
from sonda.record.run import Run
from sonda.report import quantities
from sonda.report.blocks import Block, Gap, Items, Paragraph, next_line, paragraphs
from sonda.report.json import document, encode
from sonda.report.values import Document, value_document
from sonda.report.views.simulated import choose_simulated, is_idle
from sonda.report.views.steps.document import verdicts_fields
from sonda.report.views.steps.glance import choose_slowest, headline
from sonda.report.views.steps.tries import name_remedy
from sonda.report.views.steps.verdict import advice, evidence
from sonda.report.words import in_words, verdict_sentences

MOST_BYTES = 4095
"""Of the document with the line's end: below 4 kB."""
MOST_PLACES = 5
LONGEST_TEXT = 600
"""Characters of a text from outside, or of a sentence that names many things."""
EXPENDABLE = ("places", "warnings", "tried", "phases", "verdicts")
"""Lists that lose their last entries where there is no room for all, the first of these first."""


def summarise_kind(run: Run) -> Summary:
    """The summary of a run whose verdicts are those that its own view shows, whatever kind of run it is.

    Raises SondaError where what its kind keeps cannot be read.
    """
    if run.info.kind == "imported":
        return summarise_trace(run).summary
    summary = summarise(run)
    energy = summary.energy
    if run.info.kind != "energy" or energy is None:
        return summary
    remedies = (Remedy(energy.remedy),) if energy.remedy is not None else ()
    verdict = Verdict("none", energy.finding, {}, remedies)
    return replace(summary, title=energy.title, verdicts=(verdict,), warnings=tuple(energy.warnings))


def explain_blocks(summary: Summary, reference: str = "") -> list[Block]:
    """The explanation for a terminal; `reference` is the id to type."""
    blocks: list[Block] = [headline(summary)]
    for verdict, sentence in zip(summary.verdicts, verdict_sentences(summary), strict=True):
        blocks += [Gap(), Paragraph(sentence, "first" if verdict is summary.verdicts[0] else "")]
        blocks += [evidence(verdict), *_place_blocks(verdict), advice([verdict])]
    part = _first_part(summary)
    if part is not None:
        phases = [f"{name} {_percent(share)}" for name, share in _phase_shares(part).items()]
        slowest = [_place_words(place) for place in _slowest_places(summary, part)]
        blocks += [Gap(), *([Items(phases, "Step: ")] if phases else [])]
        blocks += [Items(slowest, "Most of it: ")] if slowest else []
    tried = [f"{name} {quantities.factor(speedup)}" for name, speedup in _tried_remedies(summary)]
    blocks += [Gap(), Items(tried, "Tried: ")] if tried else []
    doubts = in_words(summary.warnings)
    blocks += [Gap(), *paragraphs(doubts, "warning")] if doubts else []
    named = reference or summary.run
    return [*blocks, Gap(), next_line(named)]


def explain_document(summary: Summary) -> Document:
    """The explanation as plain JSON values, `MOST_BYTES` at most.

    `verdicts` are those of the run's full document. Where there is no room for all, lists end early, and `left_out`
    says how many of each are missing.
    """
    part, tried = _first_part(summary), _tried_remedies(summary)
    fields: Document = {
        "run": summary.run,
        "title": summary.title,
        "subtitle": summary.subtitle,
        "status": summary.status,
        "verdicts": verdicts_fields(summary),
        **(_part_fields(summary, part) if part is not None else {}),
        **({"tried": [{"text": name, "speedup": value_document(speedup)} for name, speedup in tried]} if tried else {}),
        "warnings": in_words(summary.warnings),
        "more": [f"sonda show {summary.run} -v", f"sonda show {summary.run} --json"],
    }
    return _fit(document("explanation", _cut_texts(fields)))


def _first_part(summary: Summary) -> PartSummary | None:
    """The part that the verdict speaks of, where it did something."""
    part = summary.parts[0] if summary.parts else None
    return None if part is None or is_idle(summary, part) else part


def _part_fields(summary: Summary, part: PartSummary) -> Document:
    phases = [{"phase": name, "share": share} for name, share in _phase_shares(part).items()]
    return {
        "part": part.name,
        "step": value_document(part.step if part.simulated is None else part.simulated.cycles),
        "phases": phases,
        "places": _slowest_places(summary, part),
    }


def _tried_remedies(summary: Summary) -> list[tuple[str, Value]]:
    """Remedies that were tried on a program, and what each brought."""
    remedies = summary.trials.remedies if summary.trials is not None else ()
    return [(name_remedy(remedy.name, remedy.value), remedy.speedup) for remedy in remedies]


def _phase_shares(part: PartSummary) -> dict[str, float]:
    """Shares of the step, 0 to 1, most first."""
    if part.simulated is not None:
        cycles = part.simulated.cycles.value or 0.0
        shares = {name: (value.value or 0.0) / cycles for name, value in part.simulated.stack.items()} if cycles else {}
    else:
        shares = {row.name: row.cost.share for row in part.phases if row.cost.share == row.cost.share}
    return {name: round(share, 4) for name, share in sorted(shares.items(), key=lambda pair: -pair[1])}


def _slowest_places(summary: Summary, part: PartSummary) -> list[Document]:
    """Layers and lines that take most of the step."""
    if part.simulated is not None:
        chosen = choose_simulated(part, MOST_PLACES).shown
        layers = [(row, row.own_simulated) for row in chosen]
        return [_layer_fields(row, cost.share, cost.bound) for row, cost in layers if cost is not None]
    return [
        _line_fields(row, share) if isinstance(row, CodeLine) else _layer_fields(row, share, row.cost.bound)
        for share, row in choose_slowest(summary, part, MOST_PLACES)
    ]


def _layer_fields(row: LayerRow, share: float, bound: str) -> Document:
    return {"layer": row.path, "type": row.name, "share": round(share, 4)} | ({"bound": bound} if bound else {})


def _line_fields(line: CodeLine, share: float) -> Document:
    place = line.place
    where = {"file": place.file, "line": place.line, "function": place.function}
    return {**where, "text": line.text or line.called, "share": round(share, 4)}


def _place_words(place: Mapping[str, Any]) -> str:
    name = f"{place['layer'] or 'the model'} ({place['type']})" if "layer" in place else _line_words(place)
    return f"{name} {_percent(place['share'])}"


def _line_words(place: Mapping[str, Any]) -> str:
    return f"{place['file']}:{place['line']} {place['text']}".rstrip()


def _percent(share: float) -> str:
    return f"{quantities.percent(share)} %"


def _place_blocks(verdict: Verdict) -> list[Block]:
    """Where the cause of a verdict is."""
    place = verdict.place
    if place is None or place == CausePlace():
        return []
    line = f"{place.file}:{place.line}" if place.file else ""
    names = [line, place.function, place.text, f"layer {place.layer}" if place.layer else ""]
    return [Items([name for name in names if name], "Where: ")]


# ---- Room -----------------------------------------------------------------------------------------------------------


def _cut_texts(value: Any) -> Any:
    """The same with no text longer than `LONGEST_TEXT`."""
    match value:
        case str() if len(value) > LONGEST_TEXT:
            return f"{value[: LONGEST_TEXT - 1]}…"
        case dict():
            return {key: _cut_texts(item) for key, item in value.items()}
        case list():
            return [_cut_texts(item) for item in value]
    return value


def _fit(explanation: Document) -> Document:
    """The explanation without the ends of its lists that there is no room for; of the first verdict what is not its
    sentence goes last of all."""
    left_out: dict[str, int] = {}

    def is_too_long() -> bool:
        return len(encode(explanation)) + 1 > MOST_BYTES

    for name in EXPENDABLE:
        least = 1 if name in ("verdicts", "warnings") else 0
        while is_too_long() and len(explanation.get(name, ())) > least:
            explanation[name].pop()
            left_out[name] = left_out.get(name, 0) + 1
            explanation["left_out"] = left_out
    for name in ("remedies", "evidence"):
        if is_too_long() and explanation["verdicts"]:
            verdict = explanation["verdicts"][0]
            left_out[name] = len(verdict[name])
            verdict[name] = type(verdict[name])()
            explanation["left_out"] = left_out
    return explanation
