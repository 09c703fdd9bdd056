"""Measured or simulated steps: verdict, phases, layers."""

from __future__ import annotations

from typing import Any

from sonda.analysis.summary import Summary
from sonda.record.run import RunInfo
from sonda.report.blocks import FEW_ROWS, ROWS, Block, Heading, View
from sonda.report.provenance import lacking_blocks, origin_blocks, summary_words
from sonda.report.views.energy import energy_panels
from sonda.report.views.steps.document import summary_fields
from sonda.report.views.steps.glance import glance_blocks
from sonda.report.views.steps.ranks import rank_panels
from sonda.report.views.steps.screen import summary_blocks
from sonda.report.views.steps.section import run_panels


class StepsView(View):
    """A run of steps; `info` is what `run.json` knows, `name` what the run is called among others of a page."""

    kind = "summary"

    def __init__(self, summary: Summary, info: RunInfo | None = None, name: str = "") -> None:
        self.summary, self.info, self.name = summary, info, name or summary.run
        self.run, self.title = summary.run, summary.title

    @property
    def label(self) -> str:
        return self.name if self.name == self.run else f"{self.name} ({self.run})"

    @property
    def counted(self) -> bool:
        summary = self.summary
        tables = (summary.modelled, summary.kernel_counters, summary.second)
        return any(part.counted is not None for part in summary.parts) or any(table is not None for table in tables)

    def glance(self, rows: int = FEW_ROWS) -> list[Block]:
        return glance_blocks(self.summary, rows)

    def tables(self, rows: int = ROWS) -> list[Block]:
        return summary_blocks(self.summary, rows)

    def full(self) -> list[Block]:
        summary = self.summary
        blocks = [*run_panels(summary), *rank_panels(summary.target)]
        if summary.energy is not None:
            blocks += [Heading("Energy", level=2), *energy_panels(summary.energy, "energy")]
        return [*blocks, *lacking_blocks(summary, self.info), *origin_blocks(summary, self.info)]

    def words(self, text: str) -> tuple[tuple[str, str], ...]:
        return summary_words(self.summary)

    def fields(self) -> dict[str, Any]:
        return summary_fields(self.summary)
