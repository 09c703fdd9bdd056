"""Dask distributed: tasks on the workers of a scheduler that runs already, or of one that is started for this.

Measuring is exclusive: one task at a time on a node, on the node it was given to, never moved and never repeated. For
simulations a task whose worker dies is done again by another.
"""

from __future__ import annotations

import heapq
import logging
import os
import warnings
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from time import monotonic, sleep
from typing import Any

from sonda.record.errors import MissingExtraError, SondaError
from sonda.studies.executors.executor import ExecutorTask, TaskResult, Work, repeated_remark
from sonda.studies.executors.slurm import PREFIX, slurm_cluster
from sonda.studies.executors.worker import attempt_once, attempt_there
from sonda.targets.node import node_facts
from sonda.version import VERSION

# ---- Dask's settings, the files its nannies leave behind, and its words for lost workers ----------------------------

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


# ----------------------------------------------------------------------------------------------------------------------

Wanted = tuple[tuple[str, ...], str]
"""Kinds of resource that a worker must have, and the only node that may do it; '' for any."""
LOCAL = "local"
"""In place of an address: a scheduler and workers on this machine, on its loopback alone."""
AHEAD = 3
"""Tasks that a worker has at hand, so that it need not wait for the next."""
DIED = "several workers died of it"
PATIENCE = 3
"""A simulation that was lost is done again; losing it takes one from this, and two where workers died of it."""
TIMEOUT_S = 20
START_S = 600
"""How long workers that are started here are waited for: a queue takes its time."""
POLL_S = 1.0
"""How often it is looked whether the workers are still there."""
PATIENCE_S = 60
"""How long a node that went away is waited for when nothing else is left to do, and a result that is on its way."""


class Cluster:
    """The workers of a Dask scheduler. Raises SondaError where it is not there, has no worker or is another Sonda."""

    def __init__(self, address: str, exclusive: bool = False, workers: int = 0) -> None:
        """`exclusive`: what runs is measured. `workers` is for a scheduler that is started here."""
        dask, self._distributed = import_dask()
        self._exclusive = exclusive
        self._own: Any = None
        self._client: Any = None
        self._ahead = AHEAD
        self._seen: dict[str, dict[str, Any]] = {}
        self._again = 0
        self._gone: dict[str, str] = {}
        self._left_out: dict[str, str] = {}
        self._late = ""
        self._environment = {name: os.environ.get(name) for name in NANNYS}
        self._log = logging.getLogger("distributed")
        self._level = self._log.level
        self._log.setLevel(logging.CRITICAL)  # what goes wrong is said in our own words
        self._settings = dask.config.set({**SETTINGS, "distributed.scheduler.work-stealing": not exclusive})
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Port .* is already in use")  # another one is as good
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
            if address.startswith("tls://") and not dask.config.get("distributed.comm.tls.ca-file", None):
                raise SondaError(
                    f"{address} asks for certificates, and Dask is configured with none",
                    "set DASK_DISTRIBUTED__COMM__TLS__CA_FILE, and __CLIENT__CERT and __CLIENT__KEY beside it",
                )
            self._client = _connect(self._distributed, address)
            if self._own is not None:
                # Which kinds of node there are must be known before anything is measured.
                self._wait_for(max(workers, 1) if exclusive else 1)
            self._nodes = self._ask_nodes()
            if not self._nodes:
                raise SondaError(f"the scheduler at {address} has no workers", f"start one with: dask worker {address}")
        except BaseException:
            self.close()
            raise

    def _wait_for(self, count: int) -> None:
        """Wait for so many workers; where some come in time, it goes on with these."""
        try:
            self._client.wait_for_workers(count, timeout=START_S)
        except (TimeoutError, AssertionError, RuntimeError) as error:
            if came := len(self._workers_there()):
                self._late = f"{came} of {count} workers came within {START_S} s; those of other kinds measured nothing"
                return
            raise SondaError(
                f"no worker came within {START_S} s ({type(error).__name__})",
                "see what the queue does with the job: squeue --me",
            ) from None

    @property
    def workers(self) -> int:
        return len(self._slots())

    @property
    def kinds(self) -> set[str]:
        return {str(about["kind"]) for about in self._nodes.values()}

    @property
    def remarks(self) -> list[str]:
        again = repeated_remark(self._again)
        if self._gone and not again:
            # Dask gives what they had begun to others by itself, and does not say what that was.
            count = "1 worker" if len(self._gone) == 1 else f"{len(self._gone)} workers"
            where = ", ".join(dict.fromkeys(self._gone.values()))
            again = [f"{count} went away ({where}): what was begun there was done again by others"]
        return [*filter(None, [self._late]), *self._left_out.values(), *again]

    @property
    def nodes(self) -> dict[str, dict[str, Any]]:
        """What each worker says of its node, by the worker's address: `node`, `kind`, `gpus`, `threads`, `version`."""
        return self._nodes

    def run(self, work: Work, tasks: Iterable[ExecutorTask]) -> Iterator[TaskResult]:
        """As the protocol says. In exclusive use a node has one task at a time, whichever of its workers does it."""
        # Those that ask for the same wait in one line: there may be 100,000 of them, and a thousand workers.
        waiting: dict[Wanted, deque[ExecutorTask]] = {}
        for task in tasks:
            waiting.setdefault((task.needs, task.node), deque()).append(task)
        placed: dict[Any, tuple[ExecutorTask, str]] = {}
        tries: Counter[int] = Counter()
        begun: set[int] = set()
        self._ahead = 1 if self._exclusive else AHEAD
        began_with = {worker: str(about["node"]) for worker, about in self._nodes.items()}
        try:
            while waiting or placed:
                for wanted in [
                    task_wanted for task_wanted in waiting if not self._fitting_workers(task_wanted, self._seen)
                ]:
                    for task in waiting.pop(wanted):
                        yield TaskResult(task.number, failure=f"no worker has what it needs ({_words(wanted)})",
                                   remedy="start a worker on such a node")  # fmt: skip
                if (
                    waiting
                    and not placed
                    and not any(map(self._fitting_workers, waiting))
                    and not self._come_back(waiting)
                ):
                    yield from (_lost_words(task) for line in waiting.values() for task in line)
                    return
                used = Counter(self._slot(worker) for _, worker in placed.values())
                for wanted in list(waiting):
                    for task, worker in self._place_tasks(waiting[wanted], wanted, used):
                        placed[self._submit(work, task, worker)] = (task, worker)
                    if not waiting[wanted]:
                        del waiting[wanted]
                for future in self._wait_for_ended(placed):
                    task, worker = placed.pop(future)
                    done = self._outcome(future, task, worker)
                    tries[task.number] += 2 if done.failure == DIED else 1
                    if done.lost and not self._exclusive and tries[task.number] < PATIENCE:
                        if future.status == "finished":
                            self._look_again()  # Dask gave it to another Sonda that came late, which refused it
                        else:
                            # What kills workers takes others along: from now on a worker has one task at a time.
                            self._ahead = 1
                            begun.add(task.number)
                        waiting.setdefault((task.needs, task.node), deque()).append(task)
                    else:
                        self._again += task.number in begun and not done.failure
                        yield done
            if not self._exclusive:
                self._miss(began_with)
        finally:
            for future in placed:
                future.cancel()

    def close(self) -> None:
        """End what was started, and put back what was changed in this process."""
        for side in (self._client, self._own):
            if side is not None:
                side.close()
        self._log.setLevel(self._level)
        self._settings.__exit__(None, None, None)
        for name, value in self._environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    # ---- nodes and their slots --------------------------------------------------------------------------------

    def _ask_nodes(self, late: bool = False) -> dict[str, dict[str, Any]]:
        """The workers that are there. Raises SondaError where one of them is another Sonda; one that came `late` is
        left out instead, for others are at work."""
        known = self._workers_there()
        answers = {worker: self._seen[worker] for worker in known if worker in self._seen}
        answers |= self._ask_workers([worker for worker in known if worker not in answers])
        for worker, about in answers.items():
            if about["version"] != VERSION:
                why = f"{about['node']} has Sonda {about['version']}, and this is {VERSION}"
                if not late:
                    raise SondaError(why, "install the same version on every node")
                self._left_out[worker] = f"{why}: it was left out"
        fresh = {
            worker: {**about, "threads": known[worker]}
            for worker, about in answers.items() if worker in known and about["version"] == VERSION
        }  # fmt: skip
        self._seen |= fresh
        return fresh

    def _look_again(self) -> bool:
        """Ask who is there now; False, and nobody is, where the scheduler is gone."""
        try:
            self._nodes = self._ask_nodes(late=True)
        except Exception as error:
            if not is_gone(error):
                raise
            self._nodes = {}
            return False
        return True

    def _miss(self, before: dict[str, str]) -> None:
        """Note which of these workers, with their nodes, are there no more."""
        try:
            there = self._workers_there()
        except Exception as error:
            if not is_gone(error):
                raise
            return  # all is done, and nobody is left to ask
        self._gone |= {worker: node for worker, node in before.items() if worker not in there}

    def _workers_there(self) -> dict[str, int]:
        """Threads of each worker by its address, as the scheduler says now.

        What the client itself keeps of workers is emptied every two seconds for a moment, by a question of its own.
        """
        return dict(self._client.nthreads())

    def _ask_workers(self, workers: list[str]) -> dict[str, dict[str, Any]]:
        """What workers say of their nodes; without those that are gone already, or hang."""
        if not workers:
            return {}
        try:
            return self._client.sync(
                self._client._run, node_facts, workers=workers, on_error="ignore", callback_timeout=TIMEOUT_S
            )  # fmt: skip
        except TimeoutError:
            if len(workers) == 1:
                return {}
            return {
                worker: about for asked_worker in workers for worker, about in self._ask_workers([asked_worker]).items()
            }

    def _slot(self, worker: str) -> str:
        """What is shared by tasks that may not run at once: a node while measuring, else a worker."""
        return self._nodes[worker]["node"] if self._exclusive and worker in self._nodes else worker

    def _slots(self) -> set[str]:
        return {self._slot(worker) for worker in self._nodes}

    def _most(self, worker: str) -> int:
        return 1 if self._exclusive else self._ahead * int(self._nodes[worker]["threads"])

    def _place_tasks(
        self, line: deque[ExecutorTask], wanted: Wanted, used: Counter[str]
    ) -> Iterator[tuple[ExecutorTask, str]]:
        """Takes tasks out of a line, each with the worker that has least to do of those that may do it; ends where all
        have enough. `used` says how many tasks every slot has."""
        free = [(used[self._slot(worker)] / self._most(worker), number, worker)
                for number, worker in enumerate(self._fitting_workers(wanted))]  # fmt: skip
        heapq.heapify(free)
        while line and free:
            _, number, worker = heapq.heappop(free)
            slot, most = self._slot(worker), self._most(worker)
            if used[slot] >= most:
                continue
            used[slot] += 1
            heapq.heappush(free, (used[slot] / most, number, worker))
            yield line.popleft(), worker

    def _come_back(self, waiting: Iterable[Wanted]) -> bool:
        """Wait until a node that was there is there again; False when patience ends."""
        begin = monotonic()
        while monotonic() - begin < PATIENCE_S:
            sleep(POLL_S)
            if self._client.status != "running":
                continue  # it connects again by itself where the scheduler is back
            if self._look_again() and any(map(self._fitting_workers, waiting)):
                return True
        return False

    def _fitting_workers(self, wanted: Wanted, among: dict[str, dict[str, Any]] | None = None) -> list[str]:
        """Workers that have what is wanted; `among` others than those that are there now."""
        needs, node = wanted
        return [
            worker for worker, about in (self._nodes if among is None else among).items()
            if (not node or node in (about["node"], about["kind"])) and ("gpu" not in needs or about["gpus"])
        ]  # fmt: skip

    # ---- tasks ------------------------------------------------------------------------------------------------

    def _submit(self, work: Work, task: ExecutorTask, worker: str) -> Any:
        key = f"sonda-{task.number}-{os.urandom(6).hex()}"
        if self._exclusive:
            return self._client.submit(
                attempt_once, work, task, VERSION, os.getcwd(), key, key=key, pure=False, workers=[worker],
                allow_other_workers=False, retries=0,
            )  # fmt: skip
        # Where somebody else's Sonda is among the workers, Dask must not choose by itself.
        where = [worker] if task.node or task.needs or self._left_out else None
        return self._client.submit(
            attempt_there, work, task, VERSION, os.getcwd(), key=key, pure=False, workers=where
        )  # fmt: skip

    def _wait_for_ended(self, placed: dict[Any, tuple[ExecutorTask, str]]) -> list[Any]:
        """Wait for tasks that have ended, or whose worker is gone; none where neither is so for a while."""
        if not placed:
            return []
        try:
            with self._client.as_current():
                finished = self._distributed.wait(list(placed), timeout=POLL_S, return_when="FIRST_COMPLETED")
            return list(finished.done)
        except TimeoutError:
            pass
        except Exception as error:  # a scheduler that is gone says so in several ways
            if not is_gone(error):
                raise
            self._nodes = {}
            return list(placed)
        if self._client.status != "running":
            self._nodes = {}
            return list(placed)
        try:
            there = self._workers_there()
            if set(there) - set(self._left_out) != set(self._nodes):
                if not self._look_again():
                    return list(placed)
                there = self._workers_there()
        except Exception as error:
            if not is_gone(error):
                raise
            self._nodes = {}
            return list(placed)
        if not self._exclusive:
            return [] if there else list(placed)
        return [future for future, (_, worker) in placed.items() if worker not in there]

    def _outcome(self, future: Any, task: ExecutorTask, worker: str) -> TaskResult:
        if future.status == "finished":
            try:
                return future.result(timeout=PATIENCE_S)
            except Exception as error:
                if not is_gone(error):
                    raise
        if future.status == "error":
            raised = future.exception()
            name = type(raised).__name__
            if name == "KilledWorker" and not self._exclusive:
                return TaskResult(task.number, failure=DIED, remedy="give smaller batches", lost=True)
            if name not in ("KilledWorker", "NoValidWorkerError", "CancelledError", "FutureCancelledError"):
                return TaskResult(task.number, failure=f"{name}: {raised}", remedy="report it")
        future.cancel()
        return _lost_words(task, self._seen[worker]["node"] if self._exclusive else "")


def _lost_words(task: ExecutorTask, node: str = "") -> TaskResult:
    who = f"its worker on {node}" if node else "its worker"
    return TaskResult(task.number, failure=f"{who} or the scheduler went away", remedy="start this again", lost=True)


def _connect(distributed: Any, address: str) -> Any:
    try:
        return distributed.Client(address, timeout=TIMEOUT_S, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        reply = (str(error).splitlines() or ["no reply"])[0]
        raise SondaError(
            f"no Dask scheduler answers at {address}: {reply}",
            "start one with: dask scheduler --host 127.0.0.1, and on every node: dask worker ADDRESS",
        ) from None


def _words(wanted: Wanted) -> str:
    needs, node = wanted
    return ", ".join([*needs, *([f"node {node}"] if node else [])])
