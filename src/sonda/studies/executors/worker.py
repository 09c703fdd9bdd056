"""What a worker of Dask does with a task on its node: alone where it measures, and as it would run anywhere else."""

from __future__ import annotations

import ctypes
import fcntl
import os
import tempfile
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from time import time

from sonda.record.errors import SondaError
from sonda.record.files.partial import node_name
from sonda.studies.executors.executor import ExecutorTask, TaskResult, Work, attempt_task
from sonda.studies.executors.node_lock import hold_node

BEGUN_S = 7 * 24 * 3600
"""How long a node remembers what it has begun to measure."""
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Of mallopt(3); the values are those that glibc itself comes to."""


def attempt_there(work: Work, task: ExecutorTask, version: str, folder: str) -> TaskResult:
    """Do a task on a node: files that it names without their folder are meant from `folder`, where it was asked for, as
    far as the node sees it. Nobody measures here meanwhile."""
    keep_memory()
    return _attempt(work, task, version, folder, fcntl.LOCK_SH)


def _attempt(work: Work, task: ExecutorTask, version: str, folder: str, how: int) -> TaskResult:
    with suppress(OSError):
        os.chdir(folder)
    try:
        with hold_node(how):
            done = attempt_task(work, task, version)
    except SondaError as error:
        done = TaskResult(task.number, failure=error.cause, remedy=error.remedy)
    if done.failure and not done.failure.startswith(node_name()):
        return replace(done, failure=f"{node_name()}: {done.failure}")
    return done


def attempt_once(work: Work, task: ExecutorTask, version: str, folder: str, token: str) -> TaskResult:
    """Do a task unless it was begun here before: what was half measured is not measured again in silence, nor what was
    measured and then lost on its way."""
    try:
        _begin(token)
    except FileExistsError:
        return TaskResult(
            task.number, failure=f"its worker on {node_name()} was killed", remedy="start this again", lost=True
        )
    except OSError as error:
        return TaskResult(
            task.number, failure=f"{node_name()} cannot write {tempfile.gettempdir()}: {error.strerror}",
            remedy="make room there, or set $TMPDIR for its workers",
        )  # fmt: skip
    undo_nanny()
    return _attempt(work, task, version, folder, fcntl.LOCK_EX)


def _begin(token: str) -> None:
    """Note that a task is begun here; raises FileExistsError where it was begun before, OSError where that cannot be
    noted. What was begun long ago is forgotten."""
    begun = Path(tempfile.gettempdir()) / f"sonda-begun-{os.getuid()}"
    begun.mkdir(exist_ok=True)
    for old in begun.iterdir():
        with suppress(OSError):
            if time() - old.stat().st_mtime > BEGUN_S:
                old.unlink()
    (begun / token).touch(exist_ok=False)


@cache
def keep_memory() -> None:
    """Have this process keep the memory that it frees, up to 64 MB, as it would without Dask's nanny, which sets
    `MALLOC_TRIM_THRESHOLD_`: every piece of a trace would come from the system anew, page by page."""
    if "MALLOC_TRIM_THRESHOLD_" in os.environ:
        with suppress(AttributeError, OSError):  # another library of C than glibc
            change = ctypes.CDLL(None).mallopt
            change(M_MMAP_THRESHOLD, 32 << 20)
            change(M_TRIM_THRESHOLD, 64 << 20)


def undo_nanny() -> None:
    """Take away what Dask's nanny sets for the process that it starts: whoever is measured would inherit it, and its
    memory would come from the system anew in every step (`MALLOC_TRIM_THRESHOLD_`)."""
    import dask

    for name, value in dask.config.get("distributed.nanny.pre-spawn-environ", {}).items():
        if os.environ.get(name) == str(value):
            del os.environ[name]
