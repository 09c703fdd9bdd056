"""Measuring: a job on whatever target it names."""

from __future__ import annotations

from sonda.record.run import Run
from sonda.record.store import Store
from sonda.targets.job import Job
from sonda.targets.keeping import Place, Say
from sonda.targets.spec import parse_target, runnable


def measure(job: Job, store: Store, place: Place | None = None, say: Say = lambda text: None) -> Run:
    """Run or simulate a job and keep the run. Raises SondaError when its target cannot run it."""
    from sonda.targets import cpu, simulated

    target = simulated if runnable(parse_target(job.on)).kind == "sim" else cpu
    return target.measure(job, store, place, say)
