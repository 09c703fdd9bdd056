"""A run as its kind is shown: as text on a screen, as a document, as a fragment in a notebook."""

from __future__ import annotations

from typing import Any, Protocol

from sonda.analysis.energy_summary import EnergySummary
from sonda.analysis.exploration import explored
from sonda.analysis.interference import Interference
from sonda.analysis.kinds import kind_of
from sonda.analysis.serving import ServingSummary
from sonda.analysis.summarise import summarise
from sonda.analysis.summary import Summary
from sonda.analysis.trace_summary import summarise_trace
from sonda.record.run import Run
from sonda.report.corun import corun_document, render_corun, show_corun
from sonda.report.document import to_document
from sonda.report.energy import render_energy, show_energy
from sonda.report.energy_document import energy_document
from sonda.report.exploration import exploration_document, render_exploration
from sonda.report.imported import render_trace, show_trace, trace_document
from sonda.report.notebook import Sheet, exploration_fragment, html_fragment
from sonda.report.serving import render_serving, serving_document, show_serving
from sonda.report.terminal import render_summary

ROWS = 10
"""Layers, kernels or points that are listed unless told otherwise."""


class Face(Protocol):
    """What a run shows of itself. `width` None is the terminal's, `short` the id to type."""

    def text(
        self, width: int | None = None, rows: int = ROWS, short: str = "", color: bool | None = None
    ) -> str: ...  # fmt: skip

    def document(self) -> dict[str, Any]: ...

    def fragment(self) -> str: ...


def face_of(run: Run, summary: Summary | None = None) -> Face:
    """The face of a run; its summary is made where it is needed and not given. A trace of any size is read once.

    Raises SondaError where what its kind keeps cannot be read.
    """
    kind = kind_of(run)
    if kind == "imported":
        return TraceFace(run)
    summary = summary or summarise(run)
    match kind:
        case "exploration":
            return ExplorationFace(run, summary)
        case "corun" if summary.corun is not None:
            return CorunFace(summary.corun)
        case "serving" if summary.serving is not None:
            return ServingFace(summary.serving)
        case "energy" if summary.energy is not None:
            return EnergyFace(summary.energy)
    return StepsFace(summary)


class StepsFace:
    """Measured or simulated steps: verdict, phases, layers."""

    def __init__(self, summary: Summary) -> None:
        self.found = summary

    def text(self, width: int | None = None, rows: int = ROWS, short: str = "", color: bool | None = None) -> str:
        return render_summary(self.found, width, rows, short=short, color=color)

    def document(self) -> dict[str, Any]:
        return to_document(self.found)

    def fragment(self) -> str:
        return html_fragment(self.found)


class ExplorationFace:
    """The best points and the Pareto front."""

    def __init__(self, run: Run, summary: Summary) -> None:
        self.found, self.points = explored(run, summary.title), run.points

    def text(self, width: int | None = None, rows: int = ROWS, short: str = "", color: bool | None = None) -> str:
        return render_exploration(self.found, width, rows=rows, short=short, color=color)

    def document(self) -> dict[str, Any]:
        return exploration_document(self.found, self.points)

    def fragment(self) -> str:
        return exploration_fragment(self.found)


class CorunFace:
    """Who slows whom; all programs are listed."""

    def __init__(self, found: Interference) -> None:
        self.found = found

    def text(self, width: int | None = None, rows: int = ROWS, short: str = "", color: bool | None = None) -> str:
        return render_corun(self.found, width, short=short, color=color)

    def document(self) -> dict[str, Any]:
        return corun_document(self.found)

    def fragment(self) -> str:
        sheet = Sheet()
        show_corun(sheet, self.found)
        return sheet.text()


class ServingFace:
    """Traffic: percentiles, histogram, the search of a rate."""

    def __init__(self, found: ServingSummary) -> None:
        self.found = found

    def text(self, width: int | None = None, rows: int = ROWS, short: str = "", color: bool | None = None) -> str:
        return render_serving(self.found, width, short=short, color=color)

    def document(self) -> dict[str, Any]:
        return serving_document(self.found)

    def fragment(self) -> str:
        sheet = Sheet()
        show_serving(sheet, self.found)
        return sheet.text()


class TraceFace:
    """Another tool's file: devices, ranks, kernels, critical path."""

    def __init__(self, run: Run) -> None:
        self.found = summarise_trace(run)

    def text(self, width: int | None = None, rows: int = ROWS, short: str = "", color: bool | None = None) -> str:
        return render_trace(self.found, width, rows=rows, short=short, color=color)

    def document(self) -> dict[str, Any]:
        return trace_document(self.found)

    def fragment(self) -> str:
        sheet = Sheet()
        show_trace(sheet, self.found, ROWS)
        return sheet.text()


class EnergyFace:
    """The energy of a command; all regions are listed."""

    def __init__(self, found: EnergySummary) -> None:
        self.found = found

    def text(self, width: int | None = None, rows: int = ROWS, short: str = "", color: bool | None = None) -> str:
        return render_energy(self.found, width, short=short, color=color)

    def document(self) -> dict[str, Any]:
        return energy_document(self.found)

    def fragment(self) -> str:
        sheet = Sheet()
        sheet.line(self.found.title, "bold")
        show_energy(sheet, self.found)
        return sheet.text()
