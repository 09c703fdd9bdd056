"""What processes do that play nodes in tests."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec

from plain_runs import target_of
from record_examples import an_info, two_spans
from sonda.record.errors import SondaError
from sonda.record.files.partial import NODE
from sonda.record.run import write_run
from sonda.record.store import Store
from sonda.studies.executors import training_jobs
from sonda.targets import circumstances
from sonda.targets.job import Job
from sonda.targets.ranks import launcher as parallel
from sonda.targets.ranks import nodes as parallel_nodes
from sonda.targets.ranks import rank as parallel_rank
from sonda.targets.ranks.elastic_agent import PLAN, run_on_nodes
from sonda.targets.ranks.plan import Plan
from warm_worker import use_server


def measured(name: str, job: Job, place: Path, results: Any, server: str) -> None:
    """Measure a job as one node of several, whose agent is forked by a server; tells the run's id, or what was said
    instead."""
    use_server(server)
    os.environ.update({NODE: name, "OMP_NUM_THREADS": "1"})
    for module in (parallel, circumstances):  # ceilings are measured elsewhere, and take seconds
        module.load_or_measure = lambda *given, **settings: {}  # type: ignore[attr-defined]
    try:
        results.put((name, parallel.measure_ranks(job, Store(place)).id))
    except SondaError as error:
        results.put((name, str(error)))


def agent(name: str, directory: Path, results: Any) -> None:
    """The agent of a node, whose ranks are processes of their own."""
    os.environ.update({NODE: name, "OMP_NUM_THREADS": "1"})
    parallel_nodes.GONE_S = 1
    plan = msgspec.json.decode((directory / PLAN).read_bytes(), type=Plan)
    results.put((name, run_on_nodes(plan, directory)))


def whole_rank(directories: list[str]) -> int:
    """A rank as it is started on one of these nodes, two on each, whose plan and job are in its directory."""
    node, local = divmod(int(os.environ["RANK"]), 2)
    os.environ["LOCAL_RANK"] = str(local)
    sys.argv = ["rank", directories[node]]
    return parallel_rank.main()


def kept(folder: str, order: bytes) -> dict[str, str]:
    """A node of a job whose first node leaves a run of what it was asked for, without measuring."""
    import submitit

    if submitit.JobEnvironment().global_rank:
        return {"elsewhere": "the first has it"}
    wanted = msgspec.json.decode(order, type=training_jobs.TrainingOrder)
    place = wanted.place
    info = msgspec.structs.replace(
        an_info(place["identity"]),
        target=target_of({"spec": wanted.job.on}),
        point=place["point"],
        study=place["study"],
    )
    run = write_run(Path(folder) / "disk", info, two_spans())
    training_jobs._leave_run(run, Path(folder) / training_jobs.RUN)
    return {training_jobs.RUN: run.directory.name}


def answer(place: str, doomed: str) -> dict[str, str]:
    """The work of a node that only says who it is and where all meet; the `doomed` one is killed."""
    import submitit

    number = submitit.JobEnvironment().global_rank
    if doomed == str(number):
        os.kill(os.getpid(), signal.SIGKILL)
    return {"number": str(number), "port": str(training_jobs._port(Path(place), number == 0))}
