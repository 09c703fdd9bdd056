"""Several runs on a screen: side by side, and one against the other."""

from __future__ import annotations

from collections.abc import Sequence

from sonda.analysis.comparison.findings import ComparedSettings
from sonda.analysis.comparison.summary import Comparison
from sonda.analysis.summary import Summary
from sonda.report.blocks import (
    FEW_ROWS,
    Bars,
    Block,
    Gap,
    Heading,
    Items,
    OneLine,
    Paragraph,
    TableBlock,
    doubts,
    next_of_two,
    paragraphs,
    saved_paragraph,
)
from sonda.report.views.compare.tables import (
    change_bars,
    changed_layers,
    layers_table,
    limit_words,
    one_sided_phrases,
    repetitions_of,
    sides_words,
    step_and_phases_table,
    unchanged_words,
    verdict_words,
)
from sonda.report.views.simulated import layers_side_by_side
from sonda.report.views.steps.tables import column_names, side_by_side_table, step_bars
from sonda.report.views.steps.training import trainings_table
from sonda.report.words import brief_doubts, describe, in_words
from sonda.report.words.names import first_part

FEW_RUNS = 3
"""Runs side by side whose verdicts are said in full."""


def side_by_side_glance(
    summaries: Sequence[Summary], names: Sequence[str] = (), rows: int = FEW_ROWS, *, saved: Sequence[str] = ()
) -> list[Block]:
    """Several runs: what limits each, and a bar for the step of each; arguments as for `side_by_side_blocks`."""
    heads = list(names) or column_names(summaries)
    titles = list(dict.fromkeys(summary.title for summary in summaries))
    blocks: list[Block] = [Heading(" · ".join(titles)), Gap()]
    shown = list(zip(heads, summaries, strict=True))
    found = [f"{head}: {describe(summary.verdicts[0].finding)}" for head, summary in shown[:rows]]
    # Of many a line each is what there is room for.
    blocks += [Paragraph(text) if len(shown) <= FEW_RUNS else OneLine([text]) for text in found]
    bars = step_bars(heads, summaries)
    blocks += [Gap(), Bars(bars)] if bars else []
    texts = [
        f"{head}: {text}" for head, summary in shown for text in brief_doubts(summary.warnings, first_part(summary))
    ]
    blocks += [Gap(), *([OneLine(texts, "warning")] if texts else [])]
    names = " ".join(saved)
    where = (
        Items([f"Runs {names}", f"tables: sonda show {saved[0]} -v", f"page: sonda report {names}"]) if saved else None
    )
    return [*blocks, where] if where is not None else blocks


def side_by_side_blocks(
    summaries: Sequence[Summary], names: Sequence[str] = (), layers: int = 10, *, saved: Sequence[str] = ()
) -> list[Block]:
    """Several runs, one column each, the fastest marked; `names` head the columns, else the targets.

    Where one is simulated, its layers stand beside those of the others, `layers` of them. `saved` are ids to type.
    """
    heads = list(names) or column_names(summaries)
    titles = list(dict.fromkeys(summary.title for summary in summaries))
    blocks: list[Block] = [
        Heading(" · ".join(titles)),
        Gap(),
        *(
            Paragraph(f"{head}: {describe(summary.verdicts[0].finding)}")
            for head, summary in zip(heads, summaries, strict=True)
        ),
        Gap(),
    ]
    trainings = trainings_table(summaries, heads)
    if trainings is not None:
        blocks += [TableBlock(trainings), Gap()]
    blocks += [TableBlock(side_by_side_table(summaries, heads)), Gap()]
    if any(part.simulated for summary in summaries for part in summary.parts):
        blocks += [TableBlock(layers_side_by_side(summaries, heads, layers), reasons=False), Gap()]
    for head, summary in zip(heads, summaries, strict=True):
        blocks += [Paragraph(f"{head}: {warning}", "warning") for warning in in_words(summary.warnings)]
    if saved:
        blocks.append(saved_paragraph(saved))
    return blocks


def comparison_glance(
    comparison: Comparison, rows: int = FEW_ROWS, fail_above: float | None = None, asked: Sequence[str] = ()
) -> list[Block]:
    """B against A: whether it is faster, and the phases and layers that changed most; arguments as for
    `comparison_blocks`."""
    blocks: list[Block] = [Heading(sides_words(comparison, asked)), Gap(), *_judgement(comparison, fail_above)]
    blocks += paragraphs((describe(note) for note in comparison.notes if isinstance(note, ComparedSettings)), "quiet")
    if comparison.parts:
        part = comparison.parts[0]
        changed = [row for row in part.phases if row.significant]
        phases = sorted(changed, key=lambda row: -abs((row.b.value or 0.0) - (row.a.value or 0.0)))[:rows]
        layers = changed_layers(part, rows)
        for bars in (change_bars(phases), change_bars(layers)):
            blocks += [Gap(), bars] if bars.bars else []
        if not changed and not layers:
            blocks += [Gap(), Paragraph("No phase and no layer changed beyond what runs vary.", "quiet")]
    first = comparison.parts[0].name if comparison.parts else ""
    blocks += doubts(comparison.warnings, part=first)
    return [*blocks, next_of_two(" ".join(asked))] if asked else blocks


def _judgement(comparison: Comparison, fail_above: float | None) -> list[Block]:
    """Whether B is faster, and whether a limit is passed."""
    blocks: list[Block] = [Paragraph(verdict_words(comparison), "first")]
    if fail_above is not None:
        check = comparison.check(fail_above)
        blocks.append(
            Paragraph(
                limit_words(check, comparison.exact, repetitions_of(comparison)), "bad" if check.exit_code else ""
            )
        )
    return blocks


def comparison_blocks(
    comparison: Comparison, layers: int = 10, fail_above: float | None = None, asked: Sequence[str] = ()
) -> list[Block]:
    """B against A: step, phases, the layers that changed; `fail_above` 0.05 adds whether 5 % is passed, `asked` are the
    names to type for both sides."""
    blocks: list[Block] = [Heading(sides_words(comparison)), Gap(), *_judgement(comparison, fail_above)]
    for part in comparison.parts:
        blocks.append(Gap())
        if len(comparison.parts) > 1:
            blocks.append(Paragraph(part.name, "first", hang=0))
        blocks.append(TableBlock(step_and_phases_table(part)))
        changed = changed_layers(part, layers)
        total = sum(row.significant for row in part.layers)
        if changed:
            blocks += [Gap(), TableBlock(layers_table(changed, f"layer ({len(changed)} of {total} changed)"))]
        if part.layers:
            blocks.append(Paragraph(unchanged_words(part, comparison.exact), "quiet"))
        blocks += paragraphs(one_sided_phrases(part))
    if comparison.notes or comparison.warnings:
        blocks.append(Gap())
    blocks += [*paragraphs(map(describe, comparison.notes)), *paragraphs(map(describe, comparison.warnings), "warning")]
    if asked:
        blocks += [Gap(), Paragraph(f"Page of both: sonda report {' '.join(asked)}")]
    return blocks
