"""Trainings over nodes that a queue starts: one job of Slurm, through submitit, with a task on every node.

submitit keeps its files in a folder of the store, which every node must see. Each node measures into a store on its own
disk; the first, whose address the others are given, puts the run of all nodes into the folder, and it is brought home.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import re
import shutil
import socket
import tempfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, replace
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

import msgspec

from sonda.record.errors import MissingExtraError, SondaError
from sonda.record.files.partial import NODE, write_whole
from sonda.record.progress import Lasting, Say
from sonda.record.run import Run, new_id
from sonda.record.store import Store
from sonda.studies.executors.cluster import LOCAL
from sonda.studies.executors.node_lock import hold_node
from sonda.studies.executors.slurm import PREFIX, settings_of
from sonda.targets.job import Job, check_job
from sonda.targets.pipeline import RunLabels, measure
from sonda.targets.ranks.agent import KeptElsewhereError
from sonda.targets.ranks.plan import OPTIONS, make_plan
from sonda.targets.target import parse_target
from sonda.version import VERSION
from sonda.workloads.catalogue import describe

if TYPE_CHECKING:
    from sonda.studies.engine.measurement import MeasureJob

PORT = "port"
"""File of the folder: where the first node listens."""
RUN = "run"
POLL_S = 1.0
PORT_S = 600
"""s that nodes wait for the first: tasks of one job start together, but file systems take their time."""
SEEN_S = 60
"""s that a shared file system may take to show here what a node wrote."""
MINUTES = 60
"""Of a job that says no time, as for workers that Slurm starts."""

Answer = dict[str, str]
"""What a node says: `run` (the name of its directory), `elsewhere`, or `cause` and `remedy`."""


class TrainingOrder(msgspec.Struct, frozen=True):
    """What every node is told."""

    job: Job
    place: dict[str, Any]
    version: str = VERSION


def submit_training(cluster: str) -> MeasureJob:
    """A way to measure a job over nodes that a queue starts: `slurm:partition=…`, or `local` on this machine.

    Raises SondaError where that cannot be.
    """
    if cluster != LOCAL and not cluster.startswith(PREFIX):
        raise SondaError(
            f"--on-cluster {cluster!r} starts no nodes for a training", "write slurm:partition=NAME, or local to try it"
        )
    _check_submission(cluster)

    def measure_on_nodes(job: Job, store: Store, place: RunLabels | None, say: Say) -> Run:
        nodes, gpus = nodes_of(job)
        check_training_job(job)
        folder = (store.root / "jobs" / new_id()).resolve()
        if job.epochs and not job.checkpoint:  # the same command, submitted again, goes on
            key = hashlib.sha256(msgspec.json.encode(job)).hexdigest()[:16]
            where = (store.root / "checkpoints" / f"{job.workload}-{key}").resolve()
            job = msgspec.structs.replace(job, checkpoint=str(where))
        order = msgspec.json.encode(TrainingOrder(job, asdict(place or RunLabels())))
        # A queue gives whole nodes; where this machine plays all of them, whoever else measures on it waits.
        with hold_node(fcntl.LOCK_EX, say) if cluster == LOCAL else nullcontext():
            try:
                answers = run_on_nodes(train_here, (str(folder), order), nodes, cluster, folder, say, gpus)
            except KeyboardInterrupt:  # nobody will look for what the job has printed
                _clear(folder)
                raise
        for answer in answers:
            if answer.get("cause"):
                raise SondaError(answer["cause"], answer.get("remedy", ""))
        run = _bring_home(next((answer[RUN] for answer in answers if RUN in answer), ""), folder, store)
        _clear(folder)
        return run

    return measure_on_nodes


def _bring_home(name: str, folder: Path, store: Store) -> Run:
    """The run that the first node has left in the folder. Raises SondaError where there is none."""
    if not name:
        raise SondaError("no node of the job has a run, nor says why", f"see their output in {folder}")
    limit = monotonic() + SEEN_S
    while not (folder / RUN).is_dir():
        if monotonic() > limit:
            raise SondaError(
                f"the run that the first node left in {folder / RUN} is not seen here",
                "give the store a place that all nodes see",
            )
        sleep(POLL_S)
        os.listdir(folder)  # whoever reads a directory on NFS is told whether it has changed
    return store.adopt(name, {path.name: path.read_bytes() for path in (folder / RUN).iterdir()})


def _clear(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):  # others may have jobs there
        folder.parent.rmdir()


def nodes_of(job: Job) -> tuple[int, int]:
    """How many nodes a job asks for, and how many GPUs of each. Raises SondaError where that cannot be submitted."""
    spec = parse_target(job.on)
    text = spec.options.get("nodes", "")
    if "nodes" not in OPTIONS.get(spec.mode, ()) or not text.isdecimal() or int(text) < 2:
        raise SondaError(
            f"--on-cluster is for a training over nodes, not for {job.on}", "write for example --on ddp=cpu@nodes=2"
        )
    if "at" in spec.options:
        raise SondaError(f"target {job.on!r}: the queue decides where nodes meet", "leave out at=")
    return int(text), max((device.index + 1 for device in spec.devices if device.kind == "cuda"), default=0)


def check_training_job(job: Job) -> None:
    """Raises SondaError for what every node would refuse, before a queue is waited for."""
    job = check_job(job)
    spec = parse_target(job.on)
    make_plan(job, replace(spec, options={**spec.options, "at": "HOST:1"}), here=False)
    if ":" not in job.workload:  # a file of the user's is read by the ranks
        describe(job.workload, job.options)


def run_on_nodes(
    work: Callable[..., Answer],
    arguments: Sequence[Any],
    nodes: int,
    cluster: str,
    folder: Path,
    say: Say,
    gpus: int = 0,
) -> list[Answer]:
    """What `work(*arguments)` answered on every node, in a job that is submitted and waited for.

    Raises SondaError where it cannot be submitted. An interruption takes the job out of the queue.
    """
    submitit = _submitit()
    executor = _executor(submitit, nodes, cluster, folder, gpus)
    try:
        job = executor.submit(work, *arguments)
    except (submitit.core.utils.FailedJobError, submitit.core.utils.FailedSubmissionError, OSError) as error:
        lines = [line for line in str(error).splitlines() if line.strip()] or ["no reason was given"]
        raise SondaError(f"the job was not taken: {lines[-1].strip()}", "see the words of sbatch above") from None
    last_message = ""
    try:
        while not job.done():
            state = str(job.state).lower()
            if state != last_message:
                last_message = state
                say(Lasting(f"job {job.job_id} for {nodes} nodes: {state}"))  # a queue may take hours
            sleep(POLL_S)
    except BaseException:
        job.cancel()
        raise
    answers = [_answer(submitit, job.task(number), folder) for number in range(nodes)]
    # A node that was killed says nothing; those that lost it know at least which it was.
    return sorted(answers, key=lambda answer: "unknown" in answer)


def _answer(submitit: Any, task: Any, folder: Path) -> Answer:
    try:
        return dict(task.result())
    except (submitit.core.utils.UncompletedJobError, submitit.core.utils.FailedJobError) as error:
        lines = [line for line in str(error).splitlines() if line.strip(" -")]
        last = lines[-1] if len(lines) < 2 or isinstance(error, submitit.core.utils.UncompletedJobError) else lines[-2]
        return {
            "cause": f"task {task.task_id} of job {task.job_id} ended without a result: {last.strip()}",
            "remedy": f"see its output in {folder}",
            "unknown": "yes",
        }


def _check_submission(cluster: str) -> None:
    """Raises SondaError where no job could be submitted, whatever it is."""
    _submitit()
    if cluster == LOCAL:
        return
    settings = settings_of(cluster)
    minutes_of(settings.get("time", ""))
    if "host" in settings:
        raise SondaError("--on-cluster: host is for studies, whose nodes call home", "leave it out: nodes meet here")
    for command in ("sbatch", "srun"):
        if shutil.which(command) is None:
            raise SondaError(f"there is no Slurm here: no command {command}", "run this where jobs are submitted")


def _submitit() -> Any:
    # When it is imported it sets logging up anew, which closes everybody's handlers: absl's (JAX, TensorFlow) closes
    # the stream that it writes to, which is stderr.
    handlers: list[Any] = getattr(logging, "_handlerList", [])
    before = list(handlers)
    del handlers[:]
    try:
        import submitit
    except ImportError:
        raise MissingExtraError("submitit", "cluster") from None
    finally:
        handlers[:0] = before
    return submitit


def _executor(submitit: Any, nodes: int, cluster: str, folder: Path, gpus: int = 0) -> Any:
    if cluster == LOCAL:
        executor = submitit.LocalExecutor(folder=folder, max_num_timeout=0)
        # One machine plays all nodes: a process each.
        executor.update_parameters(tasks_per_node=nodes, timeout_min=MINUTES, gpus_per_node=gpus)
        return executor
    settings = settings_of(cluster)
    executor = submitit.SlurmExecutor(folder=folder, max_num_timeout=0)
    wanted = {
        "partition": settings.get("partition"),
        "account": settings.get("account"),
        "constraint": settings.get("constraint"),
        "mem": settings.get("memory"),
        "cpus_per_task": int(settings["cores"]) if "cores" in settings else None,
        "gpus_per_node": gpus or None,
        "setup": [settings["setup"]] if "setup" in settings else None,
    }
    executor.update_parameters(
        job_name="sonda", nodes=nodes, ntasks_per_node=1, exclusive=True, time=minutes_of(settings.get("time", "")),
        **{name: value for name, value in wanted.items() if value is not None},
    )  # fmt: skip
    return executor


def minutes_of(text: str) -> int:
    """Minutes of a time as Slurm writes it: `90`, `90:00`, `01:30:00`, `1-12`, `1-12:00:00`. Raises SondaError."""
    if not text:
        return MINUTES
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text)
    if not match:
        raise SondaError(f"--on-cluster time={text} is no time", "write it like 01:30:00")
    days, *parts = match.groups()
    numbers = [int(number) for number in parts if number is not None]
    if days is not None:
        hours, minutes, seconds = (*numbers, 0, 0)[:3]
    elif len(numbers) == 3:
        hours, minutes, seconds = numbers
    else:
        hours, (minutes, seconds) = 0, (*numbers, 0)[:2]
    return max(1, int(days or 0) * 1440 + hours * 60 + minutes + (seconds > 0))


def train_here(folder: str, order: bytes) -> Answer:
    """One node's part of a training: meet the others at the first node, measure, and leave the run in the folder."""
    import submitit

    environment = submitit.JobEnvironment()
    number = int(environment.global_rank)
    place = Path(folder)
    try:
        wanted = msgspec.json.decode(order, type=TrainingOrder)
        if wanted.version != VERSION:
            raise SondaError(
                f"{environment.hostname} has Sonda {VERSION}, and the job was submitted by {wanted.version}",
                "install the same version on every node",
            )
        host = environment.hostnames[0]
        if environment.num_nodes == 1:  # this machine plays all nodes
            host = "localhost"
            os.environ.setdefault(NODE, f"{environment.hostname}-{number}")
        at = f"{host}:{_port(place, number == 0)}"
        job = msgspec.structs.replace(wanted.job, on=f"{wanted.job.on},at={at}")
        store = Store(Path(tempfile.gettempdir()) / f"sonda-node-{os.getuid()}")
        run = measure(job, store, RunLabels(**wanted.place), print)
        _leave_run(run, place / RUN)
        store.remove(run.directory)
        return {RUN: run.directory.name}
    except KeptElsewhereError as error:
        return {"elsewhere": str(error)}
    except SondaError as error:
        return {"cause": error.cause, "remedy": error.remedy}


def _leave_run(run: Run, place: Path) -> None:
    aside = place.with_name(f".{place.name}")
    try:
        shutil.copytree(run.directory, aside)
        os.replace(aside, place)  # somebody waits for it: it appears whole
    except OSError as error:
        raise SondaError(
            f"the run cannot be brought home to {place}: {error.strerror or error}",
            f"it is in {run.directory} of the first node",
        ) from None


def _port(folder: Path, first: bool) -> int:
    """A port that is free on the first node, which chooses it. Raises SondaError where nothing is heard of it."""
    path = folder / PORT
    if first:
        with socket.socket() as trial:
            trial.bind(("", 0))
            port = int(trial.getsockname()[1])
        write_whole(path, str(port).encode())
        return port
    limit = monotonic() + PORT_S
    while not path.exists():
        if monotonic() > limit:
            raise SondaError(
                f"the first node has left nothing in {folder}", "give the store a place that all nodes see"
            )
        sleep(POLL_S / 10)
    return int(path.read_text())
