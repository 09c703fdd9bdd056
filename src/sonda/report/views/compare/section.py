"""Several runs on a page: side by side, and one against the other."""

from __future__ import annotations

from collections.abc import Sequence

from sonda.analysis.comparison.runs import compare
from sonda.analysis.comparison.summary import Comparison
from sonda.analysis.summary import Summary
from sonda.record.errors import SondaError
from sonda.record.run import Run
from sonda.report import figures
from sonda.report.blocks import Block, FigureBlock, Heading, Panel, Paragraph, TableBlock, VerdictBlock, paragraphs
from sonda.report.views.compare import baseline
from sonda.report.views.compare.baseline import BaselineComparison
from sonda.report.views.compare.pairs import paired_bars, pairs_table
from sonda.report.views.compare.tables import (
    layers_table,
    listed,
    one_sided_phrases,
    sides_words,
    step_and_phases_table,
    verdict_words,
)
from sonda.report.views.steps.figure_data import phases_table
from sonda.report.views.steps.layer_tree import LIMIT
from sonda.report.views.steps.tables import side_by_side_table
from sonda.report.words import describe

Group = tuple[str, tuple[int, ...]]
"""A name, and the places of its runs among all."""


def side_by_side_panels(
    summaries: Sequence[Summary],
    names: Sequence[str],
    runs: Sequence[Run | None] = (),
    comparison: Comparison | None = None,
    groups: Sequence[str] = (),
) -> list[Block]:
    """Several runs: how each compares with the first, bars per phase, and one column each.

    `runs`, in the order of the summaries, are what differences are judged by; without them none is. Runs of one of the
    `groups` are processes of the same configuration, which are judged together. The `comparison` of two of them, where
    there is one, has its own section, and only greys what is not significant here.
    """
    (first, _), *rest = together = _group_runs(names, groups)
    if comparison is not None:
        others = [BaselineComparison(rest[0][0], comparison, columns=rest[0][1])]
    else:
        others = _compare_with_first(together, runs)
    verdict = baseline.verdict_words(first, others)
    reasons = [f"{other.name} cannot be compared: {other.reason}" for other in others if other.reason]
    blocks: list[Block] = [Heading("Side by side")]
    if verdict or reasons:
        blocks.append(VerdictBlock([*paragraphs([verdict] if verdict else [], "first"), *paragraphs(reasons)]))
    by_cycles = figures.in_cycles(summaries)
    for title, cycles, place in (("Time", False, "bars"), ("Cycles", True, "cyclebars")):
        chosen = [index for index, in_cycles in enumerate(by_cycles) if in_cycles is cycles]
        if chosen:
            figure = figures.phase_bars(
                [summaries[index] for index in chosen], [names[index] for index in chosen], cycles
            )
            if figure is None:
                continue
            behind = phases_table([summaries[index] for index in chosen], [names[index] for index in chosen], cycles)
            picture = FigureBlock(figure, place, behind)
            opened = comparison is None and not any(isinstance(block, Panel) for block in blocks)
            blocks.append(Panel(f"{title} per step by phase", [picture], opened=opened))
    table = baseline.grey_insignificant(side_by_side_table(summaries, names), others)
    blocks.append(Panel("All runs", [TableBlock(table, look="side")], GREYED if verdict else ""))
    for title, judged in (("Step and phases", baseline.phases_against(first, others)),
                          ("Layers", baseline.layers_against(first, others))):  # fmt: skip
        if judged is not None and comparison is None:
            blocks.append(Panel(f"{title} against {first}", [TableBlock(judged, tall=True)], GREYED))
    return blocks


GREYED = "What does not differ significantly from the first run, with 95 %, is grey."


def _group_runs(names: Sequence[str], groups: Sequence[str]) -> list[Group]:
    """The groups with the places of their runs; without groups every run is one."""
    if not groups:
        return [(name, (place,)) for place, name in enumerate(names)]
    return [
        (name, tuple(place for place, group in enumerate(groups) if group == name)) for name in dict.fromkeys(groups)
    ]


def _compare_with_first(together: Sequence[Group], runs: Sequence[Run | None]) -> list[BaselineComparison]:
    """Every later group of runs against the first, as far as they can be compared."""
    sides = [[run for place in places if runs and (run := runs[place]) is not None] for _, places in together]
    if not sides[0]:
        return []
    compared = []
    for (name, places), side in zip(together[1:], sides[1:], strict=True):
        try:
            compared.append(BaselineComparison(name, compare(sides[0], side) if side else None, columns=places))
        except SondaError as error:
            compared.append(BaselineComparison(name, None, error.cause))
    return compared


def comparison_title(comparison: Comparison, titles: Sequence[str], names: Sequence[str] = ()) -> str:
    """`MLP: A 8667 against B 7a7e`: what ran, by the `titles` of the runs, and what its sides are called."""
    a, b = names if len(names) == 2 else (listed(comparison.a), listed(comparison.b))
    what = " and ".join(dict.fromkeys(titles))
    return f"{what}: A {a} against B {b}"


def comparison_panels(comparison: Comparison, names: Sequence[str] = (), title: str = "Comparison") -> list[Block]:
    """B against A, called by these `names`: the sentence, then step, phases and layers of every part."""
    verdict = Paragraph(verdict_words(comparison), "first")
    blocks: list[Block] = [
        Heading(title, sides_words(comparison, names)),
        VerdictBlock(
            [
                verdict,
                *paragraphs(map(describe, comparison.warnings), "warning"),
                *paragraphs(map(describe, comparison.notes)),
            ]
        ),
    ]
    for number, part in enumerate(comparison.parts):
        figure = paired_bars(part)
        if figure is not None:
            named = "What changed" if len(comparison.parts) == 1 else f"{part.name}: what changed"
            rest = "equal" if comparison.exact else "not significant"
            caption = f"The step, and of phases and layers those that differ; what is {rest} is in the tables below."
            picture = FigureBlock(figure, f"pairs{number}", pairs_table(part))
            blocks.append(Panel(named, [picture], caption, opened=not number))
    grey = "Equal cycles are grey." if comparison.exact else "What is not significant is grey."
    for part in comparison.parts:
        title = "Step and phases" if len(comparison.parts) == 1 else f"{part.name}: step and phases"
        phases = TableBlock(step_and_phases_table(part))
        blocks.append(Panel(title, [phases, *paragraphs(one_sided_phrases(part))], grey))
        if part.layers:
            table = TableBlock(layers_table(part.layers[:LIMIT], "layer"), tall=True)
            more = len(part.layers) - LIMIT
            left = [f"{more:,} more layers are in sonda compare --json"] if more > 0 else []
            blocks.append(Panel("Layers", [table, *paragraphs(left)], grey))
    return blocks
