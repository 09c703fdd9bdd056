"""Measuring: a job on whatever target it names."""

from __future__ import annotations

import msgspec

from sonda.record.errors import SondaError
from sonda.record.run import Run
from sonda.record.saying import Say
from sonda.record.store import Store
from sonda.targets.job import DEFAULTS, Job
from sonda.targets.keeping import Place
from sonda.targets.spec import parse_target, runnable

SIMULATED_ONLY = ("mapping", "set")
"""Settings of a job that mean nothing on other targets."""
MEASURED_ONLY = (
    "steps", "warmup", "seconds", "epochs", "split", "images", "transfer", "checkpoint",
    "inter_op_threads", "bind", "gpu_private_threads", "channels_last", "deterministic", "data", "workers", "prefetch",
    "cache", "pin", "probe",
)  # fmt: skip
"""Settings of a job that mean nothing on a simulated accelerator."""


def measure(job: Job, store: Store, place: Place | None = None, say: Say = lambda text: None) -> Run:
    """Run or simulate a job and keep the run. Raises SondaError when its target cannot run it."""
    spec = parse_target(job.on)
    if not spec.mode and runnable(spec).kind == "sim":
        if not (place and place.study):  # a study may measure and simulate the same configuration
            _refuse(job)
        from sonda.targets import simulated

        return simulated.measure(job, store, place, say)
    for name in SIMULATED_ONLY:
        if getattr(job, name):
            raise SondaError(f"--{name} is for a simulated accelerator, not for {job.on}", "use --on sim:NAME")
    if spec.mode:
        from sonda.targets import parallel

        return parallel.measure(job, store, place, say)
    from sonda.targets import local

    return local.measure(job, store, place, say)


def unmeasured(job: Job) -> Job:
    """The job without what only matters where time is measured."""
    return msgspec.structs.replace(job, **{name: DEFAULTS[name] for name in MEASURED_ONLY})


def _refuse(job: Job) -> None:
    for name in MEASURED_ONLY:
        if getattr(job, name) != DEFAULTS[name]:
            raise SondaError(
                f"--{name.replace('_', '-')} means nothing on {job.on}: a simulation runs once and is exact",
                "leave it out",
            )
