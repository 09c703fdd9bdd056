"""Orders that all have to be done, given to an executor: the first that fails ends the whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from sonda.record.errors import SondaError
from sonda.record.saying import Say
from sonda.studies.executors.choice import executor_for
from sonda.studies.executors.executor import Executor, Task, Work

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
        running = executor.run(work, [Task(number, order) for number, order in enumerate(orders)])
        with closing(running):  # type: ignore[type-var]
            for done in running:
                if done.lost:
                    raise SondaError(f"{orders[done.number]}: {done.failure}", "try with fewer workers")
                if done.failure:
                    raise SondaError(done.failure, done.remedy)
                yield done.number, done.value

    return spread
