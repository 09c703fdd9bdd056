"""A workload as a whole program.

`python -m sonda.targets.local.command DIRECTORY` runs the job in its `job.json`, to the end.
Second sources count commands, each in a run of its own; this is the command of a workload.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec

from sonda.targets.job import JOB, Job
from sonda.targets.local.worker import main


def job_command(job: Job, directory: Path) -> list[str]:
    """The command that runs a job and leaves its files in `directory`."""
    (directory / JOB).write_bytes(msgspec.json.encode(job))
    # -P: a file in the user's directory that is named like a module must not be imported.
    return [sys.executable, "-P", "-m", "sonda.targets.local.command", str(directory)]


def run_job_file(directory: Path) -> int:
    """Run the job in a directory in this process; returns the exit code."""
    path = directory / JOB
    threads = msgspec.json.decode(path.read_bytes(), type=Job).threads
    if threads:
        # Before any library reads them.
        os.environ |= {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    os.dup2(os.open(path, os.O_RDONLY), 0)
    return main()


if __name__ == "__main__":
    sys.exit(run_job_file(Path(sys.argv[1])))
