"""The view of each kind of run."""

from __future__ import annotations

from sonda.analysis.run_summary import summarise
from sonda.analysis.simulated.exploration import explored
from sonda.analysis.summary import Summary
from sonda.analysis.traces.summary import summarise_trace
from sonda.record.run import Run
from sonda.report.blocks import View
from sonda.report.views.corun import CorunView
from sonda.report.views.energy import EnergyView
from sonda.report.views.exploration import ExplorationView
from sonda.report.views.imported import TraceView
from sonda.report.views.serving import ServingView
from sonda.report.views.steps.view import StepsView


def view_of(run: Run, summary: Summary | None = None, name: str = "") -> View:
    """The view of a run, which is called `name` among others; its summary is made where it is needed and not given.

    A trace of any size is read once. Raises SondaError where what its kind keeps cannot be read.
    """
    kind = run.info.kind
    if kind == "imported":
        return TraceView(summarise_trace(run), run.info)
    summary = summary or summarise(run)
    match kind:
        case "exploration":
            return ExplorationView(explored(run, summary.title), run.points)
        case "corun" if summary.corun is not None:
            return CorunView(summary.corun)
        case "serving" if summary.serving is not None:
            return ServingView(summary.serving)
        case "energy" if summary.energy is not None:
            return EnergyView(summary.energy, summary, run.info)
    return StepsView(summary, run.info, name)
