"""What kind of run it is: what was asked for decides how it is summarised and shown."""

from __future__ import annotations

from typing import Literal

from sonda.analysis.energy_meters import is_energy
from sonda.analysis.exploration import is_exploration
from sonda.analysis.interference import is_corun
from sonda.analysis.serving import is_serving
from sonda.analysis.trace_summary import is_imported
from sonda.record.run import Run

Kind = Literal["exploration", "corun", "serving", "imported", "simulated", "energy", "steps"]


def kind_of(run: Run) -> Kind:
    """An exploration, programs side by side, served traffic, another tool's file, an accelerator's run, the energy of
    a command, or else measured steps."""
    if is_exploration(run):
        return "exploration"
    if is_corun(run):
        return "corun"
    if is_serving(run):
        return "serving"
    if is_imported(run):
        return "imported"
    if run.info.target.get("device") == "sim":
        return "simulated"
    return "energy" if is_energy(run) else "steps"
