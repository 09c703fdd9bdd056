"""The child process of a job: its start, its end, and its outcome."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from sonda.record.errors import SondaError
from sonda.targets.job import OUTCOME, Job
from sonda.targets.local.worker import Outcome
from sonda.targets.signals import describe_exit


def run_child(
    job: Job,
    directory: Path,
    threads: int,
    variables: Mapping[str, str] | None = None,
    started: Callable[[int], None] = lambda pid: None,
) -> Outcome:
    """Run a job in a process of its own, which leaves its files in `directory`. Raises SondaError when it fails.

    `started(pid)` is called before the process is given the job.
    """
    environment = {**os.environ, **(variables or {}), "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    # -P: a file in the user's directory that is named like a module must not be imported.
    command = [sys.executable, "-P", "-m", "sonda.targets.local.worker", str(directory)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=environment) as child:
        try:
            started(child.pid)
            child.communicate(msgspec.json.encode(job))
        except BaseException:
            child.kill()
            raise
    _check_disk(directory)
    try:
        outcome = msgspec.json.decode((directory / OUTCOME).read_bytes(), type=Outcome)
    except FileNotFoundError:
        raise SondaError(
            f"the process running {job.workload} {describe_exit(child.returncode)}", "see its output above"
        ) from None
    if outcome.cause:
        raise SondaError(outcome.cause, outcome.remedy)
    return outcome


def _check_disk(directory: Path) -> None:
    """Raises SondaError where the observed process could not write what it saw."""
    room = "free some space, or set $SONDA_HOME"
    if any(directory.glob("*.full")):
        raise SondaError(f"the disk under {directory.parent} filled up while observing: what was seen is lost", room)
    for path in directory.glob("*.unwritten.failure"):
        why = path.read_text(encoding="utf-8", errors="replace").strip().splitlines() or ["?"]
        raise SondaError(f"what was observed could not be written under {directory.parent}: {why[-1]}", room)
