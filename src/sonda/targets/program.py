"""The program of a job: what one inference step does, from its description or from running its model once."""

from __future__ import annotations

import contextlib
import dataclasses
import sys

from sonda.accelerators.operation import Bags, Program
from sonda.record.errors import MissingExtraError, SondaError
from sonda.record.protocols import Task, Workload
from sonda.targets.described import described_program
from sonda.targets.job import Job
from sonda.targets.worker import describe_failure
from sonda.workloads.catalogue import describe
from sonda.workloads.recommender import Recommender


def program_of(job: Job, patterns: frozenset[str]) -> Program:
    """The job's program in this process, with the zeros of the kinds of operation in `patterns`.

    No framework is needed where the description suffices. What the model prints goes to stderr. Raises SondaError in
    one line when the model fails.
    """
    workload = describe(job.workload, job.options)
    program = None if patterns else described_program(workload)
    if program is not None:
        return program
    try:
        with contextlib.redirect_stdout(sys.stderr):
            return captured_program(job, workload, patterns)[1]
    except SondaError:
        raise
    except Exception as error:
        raise SondaError(describe_failure(error), "check --input and the workload's options") from error


def captured_program(job: Job, workload: Workload, patterns: frozenset[str]) -> tuple[Task, Program]:
    """The model made ready for inference, and what it does when it is run once."""
    from sonda.accelerators.capture import capture

    try:
        import torch
    except ImportError:
        raise MissingExtraError("PyTorch", "torch") from None
    if job.threads:
        torch.set_num_threads(job.threads)
    whole = described_program(workload)
    if whole is None or not isinstance(workload, Recommender) or job.framework != "torch":
        task = workload.build(job.framework, False, job.seed)
        task.model.eval()
        return task, capture(task.model, task.infer, patterns).program
    task = workload.first_step()
    program = capture(task.model, task.infer, patterns).program
    # The tables of this model hold only what is looked up; which rows these are, the description knows.
    operations = [
        dataclasses.replace(one, shape=other.shape) if isinstance(other.shape, Bags) else one
        for one, other in zip(program.operations, whole.operations, strict=True)
    ]
    return task, dataclasses.replace(program, operations=tuple(operations))
