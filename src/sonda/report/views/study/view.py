"""The view of a study: what it measured beside what was published, and the answer to its question."""

from __future__ import annotations

from typing import Any

from sonda.report.blocks import FEW_ROWS, ROWS, Block, Detail, View, at_detail
from sonda.report.provenance import study_words
from sonda.report.screen import render, width_to_fill
from sonda.report.views.study.page import study_panels
from sonda.report.views.study.screen import next_look, study_blocks, study_glance
from sonda.report.views.study.tables import Document, with_measured_columns


class StudyView(View):
    """A study as `sonda.studies` describes it. `reference` and `options` are what to type to have its page."""

    kind = "study"

    def __init__(self, study: Document, *, reference: str = "", options: str = "") -> None:
        self.study, self.reference, self.options = study, reference, options
        self.title = str(study["study"])

    @property
    def label(self) -> str:
        return self.title

    def place(self, index: int) -> str:
        return "study"

    def glance(self, rows: int = FEW_ROWS) -> list[Block]:
        return study_glance(self.study, rows)

    def tables(self, rows: int = ROWS) -> list[Block]:
        """For a terminal of the width that there is; all rows are listed."""
        return self._tables(None)

    def _tables(self, width: int | None) -> list[Block]:
        return study_blocks(self.study, width_to_fill(width), reference=self.reference, options=self.options)

    def full(self) -> list[Block]:
        return study_panels(self.study)

    def words(self, text: str) -> tuple[tuple[str, str], ...]:
        figures = [figure for row in self.study["rows"] for figure in row["figures"].values()]
        columns = [
            (str(column["figure"]), str(column["unit"])) for column in with_measured_columns(self.study)["columns"]
        ]
        return study_words(text, columns, any(figure["source"] == "simulated" for figure in figures))

    def fields(self) -> dict[str, Any]:
        return dict(self.study)

    def text(
        self, width: int | None = None, rows: int | None = None, short: str = "", color: bool | None = None,
        detail: Detail = Detail.GLANCE,
    ) -> str:  # fmt: skip
        """As a terminal shows it; a study is no run, so that no id is named."""
        if detail is not Detail.GLANCE:
            return render(at_detail(self._tables(width), detail), width, color)
        where = next_look(self.study, self.reference, self.options) if self.reference else []
        return render([*self.glance(FEW_ROWS if rows is None else rows), *where], width, color)
