"""Measuring: a job on whatever target it names."""

from __future__ import annotations

from sonda.record.errors import SondaError
from sonda.record.run import Run
from sonda.record.store import Store
from sonda.targets.job import Job
from sonda.targets.keeping import Place, Say
from sonda.targets.spec import parse_target, runnable

SIMULATED_ONLY = ("mapping", "set")
"""Settings of a job that mean nothing on other targets."""


def measure(job: Job, store: Store, place: Place | None = None, say: Say = lambda text: None) -> Run:
    """Run or simulate a job and keep the run. Raises SondaError when its target cannot run it."""
    from sonda.targets import cpu, simulated

    if runnable(parse_target(job.on)).kind == "sim":
        return simulated.measure(job, store, place, say)
    for name in SIMULATED_ONLY:
        if getattr(job, name):
            raise SondaError(f"--{name} is for a simulated accelerator, not for {job.on}", "use --on sim:NAME")
    return cpu.measure(job, store, place, say)
