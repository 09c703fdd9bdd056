"""Dask distributed: tasks on the workers of a scheduler that runs already, or of one that is started for this.

Measuring is exclusive: one task at a time on a node, on the node it was given to, never moved and never repeated. For
simulations a task whose worker dies is done again by another.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from sonda.record.errors import MissingExtraError, SondaError
from sonda.studies.executors.executor import Done, Task, Work, attempt
from sonda.studies.executors.slurm import PREFIX, slurm_cluster
from sonda.targets.node import node_facts
from sonda.version import VERSION

LOCAL = "local"
"""In place of an address: a scheduler and workers on this machine, on its loopback alone."""
AHEAD = 3
"""Tasks that a worker has at hand, so that it need not wait for the next."""
RETRIES = 2
"""How often a simulation whose worker died is done again."""
TIMEOUT_S = 20
START_S = 600
"""How long the first worker that is started here is waited for: a queue takes its time."""
POLL_S = 1.0
"""How often it is looked whether the workers are still there."""
PATIENCE_S = 60
"""How long a node that went away is waited for when nothing else is left to do."""
SETTINGS = {
    "distributed.worker.daemon": False,  # what is measured is a process of its own
    "distributed.comm.retry.count": 2,
    "distributed.admin.tick.limit": "60s",  # simulating holds the interpreter: that is no reason to complain
}


class Cluster:
    """The workers of a Dask scheduler. Raises SondaError where it is not there, has no worker or is another Sonda."""

    def __init__(self, address: str, exclusive: bool = False, workers: int = 0) -> None:
        """`exclusive`: what runs is measured. `workers` is for a scheduler that is started here."""
        dask, self._distributed = _imported()
        self._exclusive = exclusive
        self._own: Any = None
        self._client: Any = None
        self._ahead = AHEAD
        self._seen: dict[str, dict[str, Any]] = {}
        logging.getLogger("distributed").setLevel(logging.CRITICAL)  # what goes wrong is said in our own words
        dask.config.set({**SETTINGS, "distributed.scheduler.work-stealing": not exclusive})
        if address == LOCAL:
            self._own = self._distributed.LocalCluster(
                n_workers=workers or len(os.sched_getaffinity(0)), threads_per_worker=1, host="127.0.0.1",
                dashboard_address=None, silence_logs=50,
            )  # fmt: skip
        elif address.startswith(PREFIX):
            self._own = slurm_cluster(address, workers, exclusive)
        if self._own is not None:
            address = self._own.scheduler_address
        self._address = address
        try:
            self._client = _connected(self._distributed, address)
            self._nodes = self._ask_nodes()
        except BaseException:
            self.close()
            raise

    @property
    def workers(self) -> int:
        return len(self._slots())

    @property
    def kinds(self) -> set[str]:
        return {str(about["kind"]) for about in self._nodes.values()}

    @property
    def nodes(self) -> dict[str, dict[str, Any]]:
        """What each worker says of its node, by the worker's address: `node`, `kind`, `gpus`, `threads`, `version`."""
        return self._nodes

    def run(self, work: Work, tasks: Iterable[Task]) -> Iterator[Done]:
        """As the protocol says. In exclusive use a node has one task at a time, whichever of its workers does it."""
        waiting = list(tasks)
        placed: dict[Any, tuple[Task, str]] = {}
        tries: Counter[int] = Counter()
        self._ahead = 1 if self._exclusive else AHEAD
        try:
            while waiting or placed:
                for task in [one for one in waiting if not self._fitting(one, self._seen)]:
                    waiting.remove(task)
                    yield Done(task.number, failure=f"no worker has what it needs ({_needs(task)})",
                               remedy="start a worker on such a node")  # fmt: skip
                if waiting and not placed and not any(map(self._fitting, waiting)) and not self._come_back(waiting):
                    yield from (_lost(task) for task in waiting)
                    return
                taken = Counter(self._slot(worker) for _, worker in placed.values())
                for task in list(waiting):
                    free = [worker for worker in self._fitting(task) if taken[self._slot(worker)] < self._most(worker)]
                    if not free:
                        if self._exclusive:
                            continue
                        break
                    worker = min(free, key=lambda one: taken[self._slot(one)] / self._most(one))
                    taken[self._slot(worker)] += 1
                    waiting.remove(task)
                    placed[self._submit(work, task, worker)] = (task, worker)
                for future in self._ended(placed):
                    task, _ = placed.pop(future)
                    done = self._outcome(future, task)
                    if done.lost and not self._exclusive and tries[task.number] < RETRIES:
                        # What kills workers takes others along: from now on a worker has one task at a time.
                        tries[task.number] += 1
                        self._ahead = 1
                        waiting.append(task)
                    else:
                        yield done
        finally:
            for future in placed:
                future.cancel()

    def close(self) -> None:
        for one in (self._client, self._own):
            if one is not None:
                one.close()

    # ---- nodes and their slots --------------------------------------------------------------------------------

    def _ask_nodes(self) -> dict[str, dict[str, Any]]:
        if self._own is not None:
            self._client.wait_for_workers(1, timeout=START_S)
        known = self._client.scheduler_info(n_workers=-1).get("workers")
        if not known:
            raise SondaError(
                f"the scheduler at {self._address} has no workers", f"start one with: dask worker {self._address}"
            )
        said = self._client.run(node_facts, on_error="ignore")
        for about in said.values():
            if about["version"] != VERSION:
                raise SondaError(
                    f"{about['node']} has Sonda {about['version']}, and this is {VERSION}",
                    "install the same version on every node",
                )
        found = {
            worker: {**about, "threads": known[worker]["nthreads"]} for worker, about in said.items() if worker in known
        }
        self._seen |= found
        return found

    def _slot(self, worker: str) -> str:
        """What is shared by tasks that may not run at once: a node while measuring, else a worker."""
        return self._nodes[worker]["node"] if self._exclusive and worker in self._nodes else worker

    def _slots(self) -> set[str]:
        return {self._slot(worker) for worker in self._nodes}

    def _most(self, worker: str) -> int:
        return 1 if self._exclusive else self._ahead * int(self._nodes[worker]["threads"])

    def _come_back(self, waiting: list[Task]) -> bool:
        """Wait until a node that was there is there again; False when patience ends."""
        begin = monotonic()
        while monotonic() - begin < PATIENCE_S:
            sleep(POLL_S)
            if self._client.status != "running":
                continue  # it connects again by itself where the scheduler is back
            try:
                self._nodes = self._ask_nodes()
            except Exception as error:
                if not isinstance(error, SondaError) and not _is_gone(error):
                    raise
                continue
            if any(map(self._fitting, waiting)):
                return True
        return False

    def _fitting(self, task: Task, among: dict[str, dict[str, Any]] | None = None) -> list[str]:
        """Workers that may do a task; `among` others than those that are there now."""
        return [
            worker for worker, about in (self._nodes if among is None else among).items()
            if (not task.node or task.node in (about["node"], about["kind"]))
            and ("gpu" not in task.needs or about["gpus"])
        ]  # fmt: skip

    # ---- tasks ------------------------------------------------------------------------------------------------

    def _submit(self, work: Work, task: Task, worker: str) -> Any:
        key = f"sonda-{task.number}-{os.urandom(6).hex()}"
        if self._exclusive:
            return self._client.submit(
                attempt_once, work, task, VERSION, os.getcwd(), key, key=key, pure=False, workers=[worker],
                allow_other_workers=False, retries=0,
            )  # fmt: skip
        where = [worker] if task.node or task.needs else None
        return self._client.submit(
            attempt_there, work, task, VERSION, os.getcwd(), key=key, pure=False, workers=where
        )  # fmt: skip

    def _ended(self, placed: dict[Any, tuple[Task, str]]) -> list[Any]:
        """Wait for tasks that have ended, or whose worker is gone; none where neither is so for a while."""
        if not placed:
            return []
        try:
            with self._client.as_current():
                found = self._distributed.wait(list(placed), timeout=POLL_S, return_when="FIRST_COMPLETED")
            return list(found.done)
        except TimeoutError:
            pass
        except Exception as error:  # a scheduler that is gone says so in several ways
            if not _is_gone(error):
                raise
            self._nodes = {}
            return list(placed)
        if self._client.status != "running":
            self._nodes = {}
            return list(placed)
        there = self._client.scheduler_info(n_workers=-1).get("workers", {})
        if set(there) != set(self._nodes):
            self._nodes = self._ask_nodes() if there else {}
        if not self._exclusive:
            return [] if there else list(placed)
        return [future for future, (_, worker) in placed.items() if worker not in there]

    def _outcome(self, future: Any, task: Task) -> Done:
        if future.status == "finished":
            try:
                return future.result(timeout=POLL_S)
            except Exception as error:
                if not _is_gone(error):
                    raise
        if future.status == "error":
            raised = future.exception()
            name = type(raised).__name__
            if name not in ("KilledWorker", "NoValidWorkerError", "CancelledError", "FutureCancelledError"):
                return Done(task.number, failure=f"{name}: {raised}", remedy="report it")
        future.cancel()
        return _lost(task)


def _lost(task: Task) -> Done:
    return Done(task.number, failure="its worker or the scheduler went away", remedy="start this again", lost=True)


def attempt_there(work: Work, task: Task, version: str, folder: str) -> Done:
    """Do a task on a node: files that it names without their folder are meant from `folder`, where it was asked for, as
    far as the node sees it."""
    with suppress(OSError):
        os.chdir(folder)
    return attempt(work, task, version)


def attempt_once(work: Work, task: Task, version: str, folder: str, token: str) -> Done:
    """Do a task unless it was begun here before: what was half measured is not measured again in silence."""
    mark = Path(tempfile.gettempdir()) / f"{token}-{os.getuid()}"
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return Done(task.number, failure="its worker was killed", remedy="start this again", lost=True)
    done = attempt_there(work, task, version, folder)
    mark.unlink(missing_ok=True)
    return done


def _connected(distributed: Any, address: str) -> Any:
    try:
        return distributed.Client(address, timeout=TIMEOUT_S, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        reply = (str(error).splitlines() or ["no reply"])[0]
        raise SondaError(
            f"no Dask scheduler answers at {address}: {reply}",
            "start one with: dask scheduler --host 127.0.0.1, and on every node: dask worker ADDRESS",
        ) from None


def _is_gone(error: Exception) -> bool:
    return isinstance(error, OSError | TimeoutError) or type(error).__name__ in (
        "CommClosedError", "CancelledError", "FutureCancelledError", "FuturesCancelledError", "KilledWorker",
    )  # fmt: skip


def _needs(task: Task) -> str:
    return ", ".join([*task.needs, *([f"node {task.node}"] if task.node else [])])


def _imported() -> tuple[Any, Any]:
    try:
        import dask
        import distributed
    except ImportError:
        raise MissingExtraError("Dask distributed", "cluster") from None
    return dask, distributed
