"""The protocol of an executor: tasks go in, what became of each comes out as soon as it is known."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from sonda.analysis.run_rows import describe_new_runs
from sonda.record.errors import SondaError, named_line
from sonda.record.files.partial import node_name
from sonda.targets.node import node_facts
from sonda.version import VERSION

Work = Callable[[Any], Any]
"""A function at the top of a module: other processes find it by its name. Raises SondaError for what cannot be."""


@dataclass(frozen=True)
class ExecutorTask:
    """One thing to do. `needs` are kinds of resource that its worker must have, such as `gpu`."""

    number: int
    order: Any
    needs: tuple[str, ...] = ()
    node: str = ""
    """The only node that may do it; '' for any."""


@dataclass(frozen=True)
class TaskResult:
    """The result of a task: its value, or why there is none."""

    number: int
    value: Any = None
    failure: str = ""
    remedy: str = ""
    lost: bool = False
    """Whether its worker went away, so that nobody knows how far it came."""


class Executor(Protocol):
    """Runs tasks. A task that fails, or whose worker dies, is one that is done with a failure: nothing is raised."""

    @property
    def workers(self) -> int:
        """How many tasks run at once."""

    @property
    def kinds(self) -> set[str]:
        """The kinds of node that work, in words: processor and GPUs."""

    @property
    def remarks(self) -> list[str]:
        """What happened on the way that results do not show: tasks that were done again, nodes that were left out."""

    def run(self, work: Work, tasks: Iterable[ExecutorTask]) -> Iterator[TaskResult]:
        """Run tasks, each once, and yield what became of them as they end, in any order."""

    def close(self) -> None:
        """End the processes that this executor started."""


def attempt_task(work: Work, task: ExecutorTask, version: str = VERSION) -> TaskResult:
    """Do a task here. `version` is that of whoever asks: another one's results could be other results."""
    if version != VERSION:
        return TaskResult(
            task.number,
            failure=f"{node_name()} has Sonda {VERSION}, and {version} asks it",
            remedy="install the same version on both",
            lost=True,
        )
    describe_new_runs()
    try:
        return TaskResult(task.number, work(task.order))
    except SondaError as error:
        return TaskResult(task.number, failure=error.cause, remedy=error.remedy)
    except MemoryError:
        return TaskResult(task.number, failure="not enough memory", remedy="give smaller batches")
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return TaskResult(task.number, failure=f"the disk is full: {error}", remedy="free some space there")
        return TaskResult(task.number, failure=named_line(error), remedy="report it")
    except Exception as error:
        return TaskResult(task.number, failure=named_line(error), remedy="report it")


def repeated_remark(count: int) -> list[str]:
    """The remark on tasks that were done again; none where there were none."""
    times = "1 task was" if count == 1 else f"{count} tasks were"
    return [f"{times} done again, because a worker went away before the end"] if count else []


class ThisProcess:
    """One task after the other in this process."""

    workers = 1

    @property
    def remarks(self) -> list[str]:
        return []

    @property
    def kinds(self) -> set[str]:
        return {node_facts()["kind"]}

    def run(self, work: Work, tasks: Iterable[ExecutorTask]) -> Iterator[TaskResult]:
        for task in tasks:
            yield attempt_task(work, task)

    def close(self) -> None:
        pass
