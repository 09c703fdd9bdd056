"""The part of the child process that runs a workload in JAX."""

from __future__ import annotations

import os
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sonda.record.errors import MissingExtraError, SondaError
from sonda.targets.job import Job
from sonda.targets.spec import parse_target

DEFAULTS = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_CPP_MIN_LOG_LEVEL": "2"}
"""What JAX reads when it is imported, unless the user has set it: memory of a GPU as it is needed, warnings only."""


def run_in_jax(job: Job, directory: Path, replay: bool) -> dict[str, Any]:
    """Build and drive the workload in this process, observed; returns what the run should say of the workload.

    Raises SondaError where JAX is missing, has no such device, or lacks the operation.
    """
    from sonda.frameworks.collector.counting import Counting

    # Before numpy and JAX start threads, which then inherit the counters.
    counting = Counting(str(directory))
    from sonda.workloads.operations import Operations

    workload = Operations.from_options(job.workload, job.options)
    jax = import_jax(job)
    from sonda.frameworks.collector.recorder import Recorder
    from sonda.frameworks.jax_driver import drive
    from sonda.frameworks.jax_observer import JaxObserver
    from sonda.frameworks.torch_driver import Driving

    device = jax_device(job, jax)
    threads = job.threads or 1
    task = workload.in_jax(job.seed, job.precision, device)
    recorder = Recorder(str(directory))
    observer = JaxObserver(recorder, counting)
    observer.open({name: version(name) for name in ("jax", "jaxlib")}, threads)
    number = parse_target(job.on).devices[0]
    on = f"cuda:{number.index}" if number.kind == "cuda" else "cpu"
    try:
        drive(
            task, observer, jax,
            Driving(False, job.steps, job.warmup, job.seconds, job.precision, device=on, replay=replay),
        )  # fmt: skip
    finally:
        observer.finish(threads)
        recorder.close()
    return {
        **workload.parameters(),
        "name": workload.name,
        "samples": task.samples,
        "tokens": task.tokens,
        "phase_tokens": task.phase_tokens,
    }


def require_jax() -> None:
    """Raise MissingExtraError unless JAX is installed; asked without importing it."""
    if find_spec("jax") is None:
        raise MissingExtraError("JAX", "jax")


def compile_once(folder: Path) -> dict[str, str]:
    """Variables by which the processes of one run share what JAX compiles.

    On a GPU it chooses among kernels by trying them: without that, a process that counts could run other ones.
    """
    return {
        "JAX_COMPILATION_CACHE_DIR": str(folder),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


def import_jax(job: Job) -> Any:
    """JAX with as many threads as were asked for, on the kind of device that was asked for."""
    on_gpu = parse_target(job.on).devices[0].kind == "cuda"
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)
    os.environ["JAX_PLATFORMS"] = "cuda" if on_gpu else "cpu"
    if job.threads:
        os.environ["PJRT_NPROC"] = str(job.threads)
    require_jax()
    import jax

    if job.precision == "float64":
        jax.config.update("jax_enable_x64", True)
    return jax


def jax_device(job: Job, jax: Any) -> Any:
    """JAX's own device of a target. Raises SondaError where JAX cannot use it."""
    device = parse_target(job.on).devices[0]
    try:
        known = jax.devices()
    except RuntimeError:
        raise SondaError(
            f"target {job.on!r}: JAX {jax.__version__} finds no GPU that it can use",
            "install JAX for this machine's driver (pip install 'jax[cuda13]'), or use --on cpu",
        ) from None
    if device.kind == "cuda" and device.index >= len(known):
        there = ", ".join(f"cuda:{number}" for number in range(len(known)))
        raise SondaError(f"target {job.on!r}: there is no such GPU", f"JAX has {there}")
    return known[device.index if device.kind == "cuda" else 0]
