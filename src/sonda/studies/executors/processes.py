"""Processes of this machine: each does one task at a time; one that dies is replaced and its task done again.

Meant for work that is the same whoever does it and however often: simulation, reading files. What measures time runs
alone and is never repeated in silence.
"""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Iterable, Iterator
from multiprocessing import connection, get_context
from typing import Any

from sonda.studies.executors.executor import ExecutorTask, TaskResult, Work, attempt_task, repeated_remark
from sonda.targets.node import node_facts

TRIES = 2
"""How often a task is given to a process: what kills two of them is taken to kill all."""


class ProcessPool:
    """A number of processes, started when first needed."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._crew: list[_Worker] = []
        self._again = 0

    @property
    def remarks(self) -> list[str]:
        return repeated_remark(self._again)

    @property
    def kinds(self) -> set[str]:
        return {node_facts()["kind"]}

    def run(self, work: Work, tasks: Iterable[ExecutorTask]) -> Iterator[TaskResult]:
        waiting = deque((task, 1) for task in tasks)
        while len(self._crew) < self.workers:
            self._crew.append(_Worker())
        busy: dict[Any, tuple[_Worker, ExecutorTask, int]] = {}
        free = list(self._crew)
        try:
            while waiting or busy:
                while free and waiting:
                    worker, (task, tries) = free.pop(), waiting.popleft()
                    worker.ask(work, task)
                    busy[worker.pipe] = (worker, task, tries)
                for pipe in connection.wait(list(busy)):
                    worker, task, tries = busy.pop(pipe)
                    try:
                        done = worker.pipe.recv()
                    except (EOFError, OSError):
                        worker = self._replace(worker)
                        if tries < TRIES:
                            self._again += 1
                            waiting.append((task, tries + 1))
                            free.append(worker)
                            continue
                        done = TaskResult(
                            task.number,
                            failure=f"{tries} processes died of it",
                            remedy="give smaller batches",
                            lost=True,
                        )
                    free.append(worker)
                    yield done
        finally:
            # Whoever stops listening leaves processes that are still at work: they cannot be asked again.
            for worker, _, _ in busy.values():
                self._crew.remove(worker)
                worker.end()

    def _replace(self, dead: _Worker) -> _Worker:
        self._crew.remove(dead)
        dead.end()
        self._crew.append(_Worker())
        return self._crew[-1]

    def close(self) -> None:
        for worker in self._crew:
            worker.end()
        self._crew.clear()


class _Worker:
    def __init__(self) -> None:
        context = get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()

    def ask(self, work: Work, task: ExecutorTask) -> None:
        try:
            self.pipe.send((work, task))
        except OSError:
            pass  # it is dead, which is noticed when its answer is waited for

    def end(self) -> None:
        self.pipe.close()
        if self.process.pid is not None and self.process.is_alive():
            os.kill(self.process.pid, signal.SIGKILL)
        self.process.join()


def _serve(pipe: connection.Connection) -> None:
    """Do what is asked until whoever asks is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        try:
            work, task = pipe.recv()
        except (EOFError, OSError):
            return
        done = attempt_task(work, task)
        try:
            pipe.send(done)
        except OSError:
            return
