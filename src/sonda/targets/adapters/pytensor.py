"""The part of the child process that runs a workload in PyTensor."""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path
from typing import Any

from sonda.targets.adapters.registry import OPERATION_LIST, import_framework
from sonda.targets.job import Job
from sonda.targets.progress import progress_writer

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
"""What the libraries under PyTensor read when they are loaded."""


def run_in_pytensor(job: Job, directory: Path, replay: bool) -> dict[str, Any]:
    """Build and drive the workload in this process, observed; returns what the run should say of the workload.

    PyTensor's own settings (`PYTENSOR_FLAGS`, `.pytensorrc`) apply, except floatX, which is the precision asked for.
    The linker is the user's, by default Numba. Raises SondaError where PyTensor is missing or lacks the operation.
    """
    from sonda.frameworks.collector.counters.process import Counting

    # Before numpy and PyTensor start threads, which then inherit the counters.
    counting = Counting(str(directory))
    threads = job.threads or 1
    os.environ.update(dict.fromkeys(THREADS, str(threads)))
    pytensor = import_framework("pytensor")
    pytensor.config.floatX = job.precision
    from sonda.frameworks.harness.announcer import open_observer
    from sonda.frameworks.harness.settings import Driving
    from sonda.frameworks.pytensor.drive.steps import drive_network, drive_operations
    from sonda.targets.training.trainer import describe_task
    from sonda.workloads.catalogue import describe
    from sonda.workloads.operations.ops import Operations

    if job.epochs:
        return _train(job, directory, counting, threads)
    workload: Any = describe(job.workload, job.options)
    single = isinstance(workload, Operations)
    if single:
        from sonda.workloads.in_pytensor.operations import build as build_operations

        task: Any = build_operations(workload, job.seed, job.precision)
    else:
        from sonda.workloads.in_pytensor.network import build as build_network

        task = build_network(workload, job.train, job.seed, job.precision)
    how = Driving(job.train, job.steps, job.warmup, job.seconds, job.precision,
                  tell=progress_writer(directory, job.steps, job.warmup))  # fmt: skip
    root = OPERATION_LIST if single else task.root
    with open_observer(directory, counting, root, _versions(), threads) as observer:
        drive = drive_operations if single else drive_network
        _, linker = drive(task, observer, how)
    return {**describe_task(workload, task), "linker": linker}


def _train(job: Job, directory: Path, counting: Any, threads: int) -> dict[str, Any]:
    """Train through epochs; what the run should say of the workload."""
    from sonda.frameworks.harness.announcer import open_observer
    from sonda.frameworks.pytensor.observe.linkers import linker_of
    from sonda.targets.training.epoch_trainer import train_epochs
    from sonda.targets.training.trainer import describe_task, open_training
    from sonda.workloads.in_pytensor.learner import PyTensorLearner

    opened = open_training(job)
    learner = PyTensorLearner(opened.workload, job.seed, job.precision)
    with open_observer(directory, counting, learner.network.root, _versions(), threads) as observer:
        train_epochs(job, directory, opened, learner, observer, job.precision)
        linker = linker_of(learner.function)
        observer.notes.append(f"PyTensor's linker is {linker}")
    return {**describe_task(opened.workload, learner.network), "linker": linker}


def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("pytensor", "numba")}
