"""The view of a study: what it measured beside what was published, and the answer to its question."""

from __future__ import annotations

from typing import Any

from sonda.report.blocks import ROWS, Block, View
from sonda.report.provenance import study_words
from sonda.report.screen import render, width_to_fill
from sonda.report.views.study.page import study_panels
from sonda.report.views.study.screen import study_blocks
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

    def brief(self, rows: int = ROWS) -> list[Block]:
        """For a terminal of the width that there is; all rows are listed."""
        return self._brief(None)

    def _brief(self, width: int | None) -> list[Block]:
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

    def text(self, width: int | None = None, rows: int = ROWS, short: str = "", color: bool | None = None) -> str:
        """As a terminal shows it; a study is no run, so that no id is named."""
        return render(self._brief(width), width, color)
