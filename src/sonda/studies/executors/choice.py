"""Which executor a command line asks for, and a list of orders carried out by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from sonda.record.errors import SondaError
from sonda.record.progress import Lasting, Say
from sonda.studies.executors.executor import Executor, ExecutorTask, ThisProcess, Work


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
        from sonda.studies.executors.processes import ProcessPool

        executor = ProcessPool(workers)
    else:
        executor = ThisProcess()
    try:
        yield executor
    finally:
        for remark in executor.remarks:
            say(Lasting(remark))
        executor.close()


# ---- Orders that must all succeed: the first failure ends the rest --------------------------------------------------

Spread = Callable[[Work, Sequence[Any]], Iterator[tuple[int, Any]]]


@contextmanager
def spread_for(workers: int = 0, cluster: str = "", say: Say = lambda text: None) -> Iterator[Spread | None]:
    """As `executor_for`; None where there is nobody but this process."""
    with executor_for(workers, cluster, say=say) as executor:
        yield spread_over(executor) if workers > 1 or cluster else None


def spread_over(executor: Executor) -> Spread:
    """A function that has `executor` do work with each order and yields place and value of each as it ends.

    It raises SondaError for the first that fails; what is still under way is then given up. What an order is about is
    said by `str`.
    """

    def spread(work: Work, orders: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        running = executor.run(work, [ExecutorTask(number, order) for number, order in enumerate(orders)])
        with closing(running):  # type: ignore[type-var]
            for done in running:
                if done.lost:
                    raise SondaError(f"{orders[done.number]}: {done.failure}", "try with fewer workers")
                if done.failure:
                    raise SondaError(done.failure, done.remedy)
                yield done.number, done.value

    return spread
