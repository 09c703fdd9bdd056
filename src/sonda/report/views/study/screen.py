"""Studies for a terminal: which ones ship, what a study would measure, what it measured beside what was published."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sonda.analysis import reasons
from sonda.report.blocks import (
    Advice,
    Block,
    Gap,
    Heading,
    Items,
    OneLine,
    Paragraph,
    Suggestion,
    TableBlock,
    paragraphs,
)
from sonda.report.table import Column, build, words
from sonda.report.views.study.answer import answer
from sonda.report.views.study.operations import operations_table
from sonda.report.views.study.tables import VARIANT, Document, option_tables, study_tables, unmeasured_figures


def studies_blocks(studies: Sequence[Document]) -> list[Block]:
    """The studies that ship with Sonda."""
    table = build(
        [
            (Column("study", right=False), words([str(study["name"]) for study in studies])),
            (Column("runs"), words([f"{study['runs']:,}" for study in studies])),
            (Column("scales", right=False), words([", ".join(study["scales"]) for study in studies])),
            (Column("question", right=False, wrap=True), words([str(study["question"]) for study in studies])),
        ]
    )
    return [
        TableBlock(table, indent=0, reasons=False),
        Gap(),
        Paragraph("Carry one out with: sonda study NAME --scale small", "quiet", 0, 0),
    ]


def plan_blocks(plan: Document, *, reference: str = "", options: str = "") -> list[Block]:
    """What a study would measure, in order; `reference`, the scale and `options` are what to type to carry it out."""
    runs = plan["runs"]
    simulated = all(str(run.get("on", "")).startswith("sim:") for run in runs)
    how = "simulated" if simulated else "each a process of its own"
    blocks: list[Block] = [
        Heading(f"{plan['study']}{scale_suffix(plan)}: {len(runs):,} runs, {how}"),
        *paragraphs(plan.get("lacks", ()), "remark"),
    ]
    keys = list(dict.fromkeys(key for run in runs for key in run if key != "identity"))
    fixed = [key for key in keys if len({run.get(key) for run in runs}) == 1] if len(runs) > 1 else []
    variants = list(dict.fromkeys(run[VARIANT] for run in runs if VARIANT in run))
    by_variant = {name: [run for run in runs if run.get(VARIANT) == name] for name in variants}
    # What a variant has and others have not, or have otherwise, needs no column either.
    own = [key for key in keys if key not in (*fixed, VARIANT)
           and variants and all(len({run.get(key) for run in part}) == 1 for part in by_variant.values())]  # fmt: skip
    blocks += _settings("all" if variants else "", runs[:1], fixed)
    for name, part in by_variant.items():
        blocks += _settings(name, part[:1], own)
    shown = [key for key in keys if key not in (*fixed, *own)]
    columns = [(Column(key, right=False), words([setting_text(run.get(key, "")) for run in runs])) for key in shown]
    if columns:
        blocks += [Gap(), TableBlock(build(columns), reasons=False)]
    if reference:
        blocks += [Gap(), Paragraph(f"Carry it out with: {_command_line(plan, reference)}{options}")]
    return blocks


MOST_SENTENCES, MOST_REMEDIES = 3, 2
GLANCE_WIDTH = 100
FEW = 3
"""Failures for one reason that are listed one by one."""


def _place(study: Document, row: Document) -> str:
    """`cnn, stress-cache`: where in the study a row stands."""
    return ", ".join(setting_text(row["configuration"][axis]) for axis in study["axes"] if axis in row["configuration"])


def failure_lines(study: Document) -> list[str]:
    """What failed and why; where many rows failed for one reason, it is said once with how many."""
    failed: dict[str, list[str]] = {}
    lines: dict[str, list[str]] = {}
    for row in study["rows"]:
        for failure in row["failures"]:
            if failure.endswith(reasons.NOT_MEASURED_YET):  # the notes say how many there are
                continue
            reason = failure.partition(": ")[2]
            place = _place(study, row)
            failed.setdefault(reason, []).append(str(row["configuration"].get(VARIANT, "")))
            lines.setdefault(reason, []).append(": ".join([*([place] if place else []), failure]))
    shown = []
    for reason, failures in lines.items():
        if len(failures) > FEW:
            variants = ", ".join(dict.fromkeys(variant for variant in failed[reason] if variant))
            shown.append(f"{variants + ': ' if variants else ''}{len(failures):,} runs: {reason}")
        else:
            shown += failures
    return shown


def _settings(name: str, runs: list[dict[str, Any]], keys: list[str]) -> list[Block]:
    """`miss curve: batch 4, probe callgrind:256KiB+1MiB`, where there is anything to say."""
    items = [f"{key} {setting_text(run[key])}" for run in runs for key in keys if key in run]
    return [Items(items, f"{name}: " if name else "", ", ")] if items else []


def setting_text(value: object) -> str:
    """A value as the study's file has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def study_blocks(study: Document, width: int, *, reference: str = "", options: str = "") -> list[Block]:
    """A study's tables: our figures with their intervals, published ones beside them, variants, deviations below.

    Tables of many columns are made for a terminal of `width`. `reference`, the scale and `options` are what to type to
    have its page.
    """
    blocks: list[Block] = [Heading(f"{study['study']}{scale_suffix(study)}")]
    if study["question"]:
        blocks.append(Paragraph(study["question"]))
    blocks += [
        *(
            Paragraph(sentence, "" if number else "first", 4, 2)
            for number, sentence in enumerate(answer(study).sentences)
        ),
        *(Paragraph(f"Out of line: {sentence}.", "remark", 4, 2) for sentence in study.get("verdicts", ())),
        *(Paragraph(f"Try: {remedy}.", "", 4, 2) for remedy in study.get("remedies", ())),
    ]
    tables = [*study_tables(study, width), *option_tables(study)]
    for titled in tables:
        blocks.append(Gap())
        if titled.title:
            blocks.append(Paragraph(titled.title, "first", hang=0))
        blocks.append(TableBlock(titled.table, reasons=titled.reasons))
    if lists_operations(study):
        table = operations_table(study["operations"])
        blocks += [Gap(), Paragraph("Operations one by one", "first", hang=0), TableBlock(table)]
    for caption in dict.fromkeys(titled.caption for titled in tables if titled.caption):
        blocks += [Gap(), Paragraph(caption, "quiet")]
    for reason, names in unmeasured_figures(study).items():
        blocks += [Gap(), Paragraph(f"– {', '.join(names)}: {reason}", "quiet")]
    for title, lines in (
        ("Failed", failure_lines(study)),
        ("Deviations", study["deviations"]),
        ("Notes", study["notes"]),
    ):
        if lines:
            blocks += [Gap(), Paragraph(title, "first", hang=0), *(Paragraph(str(line), "", 4, 2) for line in lines)]
    if reference:
        blocks += [Gap(), Paragraph(f"Page: {_command_line(study, reference)}{options} --show --page study.html")]
    return blocks


def study_glance(study: Document, rows: int) -> list[Block]:
    """The question, its answer, what to try, and the first rows of the first table."""
    heading = Heading(f"{study['study']}{scale_suffix(study)}")
    blocks: list[Block] = [heading, *([Paragraph(study["question"])] if study["question"] else [])]
    sentences = answer(study).sentences[:MOST_SENTENCES]
    blocks += [Paragraph(sentence, "" if place else "first") for place, sentence in enumerate(sentences)]
    remedies = [Suggestion(str(remedy)) for remedy in study.get("remedies", ())][:MOST_REMEDIES]
    blocks += [Advice(remedies)] if remedies else []
    for titled in list(study_tables(study, GLANCE_WIDTH))[:1]:
        table = replace(titled.table, rows=titled.table.rows[:rows], attributes=titled.table.attributes[:rows])
        more = len(titled.table.rows) - len(table.rows)
        blocks += [Gap(), TableBlock(table, reasons=False)]
        blocks += [Paragraph(f"and {more:,} more rows", "quiet", hang=0)] if more else []
    doubts = [*map(str, study.get("verdicts", ())), *failure_lines(study)]
    return [*blocks, Gap(), *([OneLine(doubts, "warning")] if doubts else [])]


def next_look(study: Document, reference: str, options: str) -> list[Block]:
    """Where to look next, of a study by what to type."""
    command = f"{_command_line(study, reference)}{options} --show"
    return [Items([f"tables: {command} -v", "page: the same with --page study.html"])]


def lists_operations(study: Document) -> bool:
    """Whether operations are shown one by one: where they say more than the study's rows."""
    operations = study.get("operations", ())
    return len(operations) > len(study["rows"]) or any(row["counted"] is not None for row in operations)


def _command_line(document: Document, reference: str) -> str:
    scale = f" --scale {document['scale']}" if document["scale"] else ""
    return f"sonda study {reference}{scale}"


def scale_suffix(document: Document) -> str:
    """` at scale small`; '' where a study has no scale."""
    return f" at scale {document['scale']}" if document["scale"] else ""
