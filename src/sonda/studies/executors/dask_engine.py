"""Dask as Sonda uses it: its settings, what its nannies leave behind, and how it says that somebody is gone."""

from __future__ import annotations

from typing import Any

from sonda.record.errors import MissingExtraError

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
NANNYS = (*THREADS, "PYTHONHASHSEED", "__DASK_PARENT_PID")
"""Variables that a nanny sets for its worker in the process that it runs in, and leaves there."""
SETTINGS: dict[str, Any] = {
    "distributed.worker.daemon": False,  # what is measured is a process of its own
    "distributed.comm.retry.count": 2,
    "distributed.admin.tick.limit": "60s",  # simulating holds the interpreter: that is no reason to complain
    "distributed.worker.profile.enabled": False,  # it stops what is measured or simulated a hundred times a second
    "distributed.scheduler.allowed-failures": 1,
    # Unasked, Dask wakes up fifty times a second in every part of it, which costs as much as its tasks.
    "distributed.admin.tick.interval": "500ms",
    "distributed.admin.system-monitor.interval": "5s",
    "distributed.worker.memory.monitor-interval": "1s",
    # Without MALLOC_TRIM_THRESHOLD_: what a piece of a trace needs would be taken from the system anew every time.
    "distributed.nanny.pre-spawn-environ": dict.fromkeys(THREADS, 1),
}


def is_gone(error: Exception) -> bool:
    """Whether this says that a scheduler or a worker is there no more."""
    return isinstance(error, OSError | TimeoutError) or type(error).__name__ in (
        "CommClosedError", "CancelledError", "FutureCancelledError", "FuturesCancelledError", "KilledWorker",
    )  # fmt: skip


def import_dask() -> tuple[Any, Any]:
    """dask and distributed. Raises MissingExtraError where they are not installed."""
    try:
        import dask
        import distributed
    except ImportError:
        raise MissingExtraError("Dask distributed", "cluster") from None
    return dask, distributed
