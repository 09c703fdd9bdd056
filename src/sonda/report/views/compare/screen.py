"""Several runs on a screen: side by side, and one against the other."""

from __future__ import annotations

from collections.abc import Sequence

from sonda.analysis.comparison.summary import Comparison
from sonda.analysis.summary import Summary
from sonda.report.blocks import Block, Gap, Heading, Paragraph, TableBlock, paragraphs, saved_paragraph
from sonda.report.views.compare.tables import (
    changed_layers,
    layers_table,
    limit_words,
    one_sided_phrases,
    sides_words,
    step_and_phases_table,
    unchanged_words,
    verdict_words,
)
from sonda.report.views.simulated import layers_side_by_side
from sonda.report.views.steps.tables import column_names, side_by_side_table
from sonda.report.views.steps.training import trainings_table
from sonda.report.words import describe, in_words


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


def comparison_blocks(
    comparison: Comparison, layers: int = 10, fail_above: float | None = None, asked: Sequence[str] = ()
) -> list[Block]:
    """B against A: step, phases, the layers that changed; `fail_above` 0.05 adds whether 5 % is passed, `asked` are the
    names to type for both sides."""
    blocks: list[Block] = [Heading(sides_words(comparison)), Gap(), Paragraph(verdict_words(comparison), "first")]
    if fail_above is not None:
        fails = comparison.fails(fail_above)
        words = limit_words(comparison.slowdown, fails, fail_above, comparison.exact)
        blocks.append(Paragraph(words, "bad" if fails else ""))
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
