"""A job's operations on a simulated mesh, beside SCALE-Sim's closed formulas."""

from __future__ import annotations

from sonda.accelerators.description.accelerator import load_accelerator
from sonda.accelerators.description.settings import with_settings
from sonda.accelerators.formats.scalesim import ScaleSimReport, products_program, verify_scalesim
from sonda.record.errors import SondaError
from sonda.targets.job import Job, check_job
from sonda.targets.simulated.program import make_program
from sonda.targets.target import parse_target, require_one_device

USUAL = "sim:tpu-16x16"


def verify_mesh(job: Job) -> ScaleSimReport:
    """Verify the products of a job, or built-in ones where it names no workload, on the mesh that it names.

    Raises SondaError where that is no mesh.
    """
    job = check_job(job)
    device = require_one_device(parse_target(job.on or USUAL))
    if device.kind != "sim":
        raise SondaError(f"{job.on} is not a simulated accelerator", f"give a mesh, e.g. --on {USUAL}")
    if job.options and not job.workload:
        raise SondaError(f"--{next(iter(job.options))} is an option of a model, which is not named", "name the model")
    accelerator = with_settings(load_accelerator(device.name), job.set)
    accelerator.require_kernels()
    return verify_scalesim(accelerator, make_program(job, frozenset()) if job.workload else products_program())
