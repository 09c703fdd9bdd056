"""Measured or simulated steps: verdict, phases, layers."""

from __future__ import annotations

from typing import Any

from sonda.analysis.summary import Summary
from sonda.record.run import RunInfo
from sonda.report.blocks import ROWS, Block, Heading, Paragraph, TableBlock, View, paragraphs
from sonda.report.provenance import lacking_blocks, origin_blocks, summary_words
from sonda.report.views.counters.sensors import probed_table
from sonda.report.views.energy import energy_panels
from sonda.report.views.simulated import choose_simulated, is_idle, simulated_layer_table, stack_tables
from sonda.report.views.steps.document import summary_fields
from sonda.report.views.steps.program import program_table
from sonda.report.views.steps.ranks import rank_panels
from sonda.report.views.steps.screen import summary_blocks
from sonda.report.views.steps.section import run_panels
from sonda.report.views.steps.tables import choose_layers, layer_table, phase_table
from sonda.report.views.steps.training import training_panel
from sonda.report.views.steps.verdict import advice
from sonda.report.words import in_words, verdict_sentences


class StepsView(View):
    """A run of steps; `info` is what `run.json` knows, `name` what the run is called among others of a page."""

    kind = "summary"

    def __init__(self, summary: Summary, info: RunInfo | None = None, name: str = "") -> None:
        self.summary, self.info, self.name = summary, info, name or summary.run
        self.run, self.title = summary.run, summary.title

    @property
    def label(self) -> str:
        return self.name if self.name == self.run else f"{self.name} ({self.run})"

    def brief(self, rows: int = ROWS) -> list[Block]:
        return summary_blocks(self.summary, rows)

    def for_notebook(self, rows: int = ROWS) -> list[Block]:
        """Title, verdicts, what to try, phases and the layers that took most time."""
        summary = self.summary
        blocks: list[Block] = [
            Heading(summary.title, summary.subtitle),
            *(Paragraph(sentence) for sentence in verdict_sentences(summary)),
            advice(summary.verdicts),
        ]
        if summary.program is not None:
            blocks.append(TableBlock(program_table(summary.program)))
        for index, part in enumerate(summary.parts):
            if is_idle(summary, part):
                continue
            if len(summary.parts) > 1:
                blocks.append(Heading(part.name, level=2))
            if part.simulated is not None:
                layers = simulated_layer_table(choose_simulated(part, rows).shown, "layer")
                blocks += [TableBlock(table) for table in (*stack_tables(part), layers)]
                continue
            blocks.append(TableBlock(phase_table(part)))
            choice = choose_layers(part, rows)
            if index == 0 and choice.shown:
                title = f"layer ({len(choice.shown)} of {choice.leaves})"
                blocks.append(TableBlock(layer_table(choice.shown, title)))
        probed = probed_table(summary.target.probed)
        return [
            *blocks,
            *([TableBlock(probed)] if probed is not None else []),
            *paragraphs(in_words(summary.notes)),
            *paragraphs(in_words(summary.warnings), "warning"),
            Paragraph(f"{summary.status} · run {summary.run}", "quiet"),
        ]

    def full(self) -> list[Block]:
        summary = self.summary
        blocks = [*run_panels(summary), *rank_panels(summary.target)]
        if summary.training is not None:
            blocks.append(training_panel(summary.training))
        if summary.energy is not None:
            blocks += [Heading("Energy", level=2), *energy_panels(summary.energy, "energy")]
        return [*blocks, *lacking_blocks(summary, self.info), *origin_blocks(summary, self.info)]

    def words(self, text: str) -> tuple[tuple[str, str], ...]:
        return summary_words(self.summary)

    def fields(self) -> dict[str, Any]:
        return summary_fields(self.summary)
