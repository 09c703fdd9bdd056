"""Workers that Slurm starts: `slurm:partition=short,time=01:00:00,account=me`, in place of a scheduler's address.

Each job is one worker on a node of its own. The scheduler runs where Sonda runs, so nodes must reach this machine.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import Any

from sonda.record.errors import MissingExtraError, SondaError

PREFIX = "slurm:"
SETTINGS = {"partition", "account", "time", "memory", "cores", "constraint", "host", "setup"}
"""What may be given: Slurm's own words; `host` is the address at which nodes find this machine, `setup` a line that
every job begins with, as `source /path/to/activate`."""
UNITS = {"cores": "cores", "memory": "bytes"}


def settings_of(text: str) -> dict[str, str]:
    """The settings of `slurm:key=value,…`. Raises SondaError."""
    settings: dict[str, str] = {}
    for word in filter(None, text.removeprefix(PREFIX).split(",")):
        key, equals, value = word.partition("=")
        if not equals or key not in SETTINGS or not value:
            raise SondaError(f"--on-cluster {word!r} is no setting of Slurm", f"use {', '.join(sorted(SETTINGS))}")
        settings[key] = value
    for key, pattern, like in (("cores", r"[1-9][0-9]*", "8"), ("memory", r"[0-9.]+ ?[KMGT]i?B?", "16GB")):
        if key in settings and not re.fullmatch(pattern, settings[key]):
            raise SondaError(f"--on-cluster {key}={settings[key]} is no number of {UNITS[key]}", f"write {key}={like}")
    return settings


def slurm_cluster(text: str, workers: int, exclusive: bool) -> Any:
    """A Dask cluster of `workers` jobs of Slurm. Raises SondaError where Slurm or dask-jobqueue is not there."""
    settings = settings_of(text)
    if shutil.which("sbatch") is None:
        raise SondaError("there is no Slurm here: no command sbatch", "run this where jobs are submitted")
    try:
        from dask_jobqueue import SLURMCluster
    except ImportError:
        raise MissingExtraError("dask-jobqueue", "cluster") from None
    directives = ["--exclusive"] if exclusive else []
    directives += [f"--constraint={settings['constraint']}"] if "constraint" in settings else []
    cluster = SLURMCluster(
        cores=int(settings.get("cores", 1)), processes=1, memory=settings.get("memory", "4GB"),
        queue=settings.get("partition"), account=settings.get("account"), walltime=settings.get("time", "01:00:00"),
        job_extra_directives=directives, job_script_prologue=[settings["setup"]] if "setup" in settings else [],
        scheduler_options={"dashboard_address": None, "host": settings.get("host", os.uname().nodename)},
        worker_extra_args=["--no-dashboard"], security=_security(),
    )  # fmt: skip
    try:
        _check_script(cluster.job_script())
    except BaseException:
        cluster.close()
        raise
    cluster.scale(jobs=max(workers, 1))
    return cluster


def _check_script(script: str) -> None:
    """Ask Slurm whether it would take a job; raises SondaError with its answer where it would not. Dask submits in the
    background, where a refusal is heard by nobody."""
    done = subprocess.run(["sbatch", "--test-only"], input=script, capture_output=True, text=True)
    if done.returncode:
        last_line = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise SondaError(f"Slurm refuses the job: {last_line}", "change what stands behind --on-cluster slurm:")


def _security() -> Any:
    """The certificates of Dask's configuration; None where it has none."""
    import dask
    from distributed import Security

    return Security(require_encryption=True) if dask.config.get("distributed.comm.tls.ca-file", None) else None
