"""The program of a job: what one inference step does, from its description or from running its model once."""

from __future__ import annotations

import contextlib
import sys

from sonda.accelerators.operation import Program
from sonda.record.errors import MissingExtraError, SondaError
from sonda.targets.described import described_program
from sonda.targets.job import Job
from sonda.targets.worker import describe_failure
from sonda.workloads.catalogue import describe


def program_of(job: Job, patterns: frozenset[str]) -> Program:
    """The job's program in this process, with the zeros of the kinds of operation in `patterns`.

    No framework is needed where the description suffices. What the model prints goes to stderr. Raises SondaError in
    one line when the model fails.
    """
    workload = describe(job.workload, job.options)
    program = None if patterns else described_program(workload)
    if program is not None:
        return program
    from sonda.accelerators.capture import capture

    try:
        import torch
    except ImportError:
        raise MissingExtraError("PyTorch", "torch") from None
    if job.threads:
        torch.set_num_threads(job.threads)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            task = workload.build(job.framework, False, job.seed)
            task.model.eval()
            return capture(task.model, task.infer, patterns).program
    except SondaError:
        raise
    except Exception as error:
        raise SondaError(describe_failure(error), "check --input and the workload's options") from error
