"""Which executor a command line asks for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sonda.record.errors import SondaError
from sonda.record.saying import Lasting, Say
from sonda.studies.executors.executor import Executor, Here


@contextmanager
def executor_for(
    workers: int = 0, cluster: str = "", exclusive: bool = False, say: Say = lambda text: None
) -> Iterator[Executor]:
    """This process; with `workers`, so many processes of this machine; with `cluster`, the workers of a Dask scheduler
    (`tcp://host:8786`, `local` for one that is started and ended here, `slurm:…` for workers that Slurm starts). `say`
    is told at the end what happened on the way. Raises SondaError."""
    if workers < 0:
        raise SondaError(f"--workers {workers} is too small", "give 1 or more")
    executor: Executor
    if cluster:
        from sonda.studies.executors.cluster import Cluster

        executor = Cluster(cluster, exclusive, workers)
    elif workers > 1:
        from sonda.studies.executors.processes import Processes

        executor = Processes(workers)
    else:
        executor = Here()
    try:
        yield executor
    finally:
        for remark in executor.remarks:
            say(Lasting(remark))
        executor.close()
