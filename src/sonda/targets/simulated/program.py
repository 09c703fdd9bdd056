"""Programs of workloads from their descriptions alone: no framework, no weights, no tables."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import sys
from functools import lru_cache

from sonda.accelerators.operations.program import Bags, Call, MatrixProduct, ModelProgram, Operation
from sonda.record.errors import MissingExtraError, SondaError
from sonda.record.protocols import Task, WorkloadProtocol
from sonda.targets.job import Job
from sonda.targets.local.worker import describe_failure
from sonda.workloads.catalogue import describe
from sonda.workloads.networks.dlrm import Recommender


def program_from_description(workload: WorkloadProtocol) -> ModelProgram | None:
    """The program of one inference step as a capture of the model would give it; None where only a capture can."""
    return _dlrm_program(workload) if isinstance(workload, Recommender) else None


@lru_cache(maxsize=16)
def _dlrm_program(description: Recommender) -> ModelProgram:
    """The program of DLRM; cached, because a study asks for the same workload once for each of its variants."""
    return _DlrmWriter(description).program()


class _DlrmWriter:
    """Lists DLRM's calls and operations in the order in which the model makes them."""

    def __init__(self, description: Recommender) -> None:
        self.description = description
        self.calls: list[Call] = []
        self.operations: list[Operation] = []
        self.others: dict[tuple[int, str], int] = {}

    def program(self) -> ModelProgram:
        description = self.description
        batch = next(description.stream().batches())
        samples = len(batch.dense)
        model = self._call("", "Dlrm", -1)
        self._perceptron("bottom", description.arch_mlp_bot, samples, model, "ReLU", "relu")
        for table, rows in enumerate(description.arch_embedding_size):
            bags = Bags(batch.sizes[table], batch.indices[table], rows, description.arch_sparse_feature_size)
            self._operation("embedding_bag", "_embedding_bag",
                            self._call(f"embeddings.{table}", "EmbeddingBag", model), bags)  # fmt: skip
        self._interaction(samples, model)
        top = (description.top_input, *description.arch_mlp_top)
        self._perceptron("top", top, samples, model, "Sigmoid", "sigmoid")
        if description.loss_threshold:
            self._other(model, "clamp")
        phases = ("forward",) * len(self.operations)
        return ModelProgram(tuple(self.calls), tuple(self.operations), phases, self.others)

    def _perceptron(
        self, path: str, widths: tuple[int, ...], samples: int, model: int, last: str, last_name: str
    ) -> None:
        around = self._call(path, "Sequential", model)
        layers = list(itertools.pairwise(widths))
        for number, (inputs, outputs) in enumerate(layers):
            layer = self._call(f"{path}.{2 * number}", "Linear", around)
            self._operation("linear", "addmm", layer, MatrixProduct(samples, outputs, inputs))
            ends = number == len(layers) - 1
            activation = self._call(f"{path}.{2 * number + 1}", last if ends else "ReLU", around)
            self._other(activation, last_name if ends else "relu")

    def _interaction(self, samples: int, model: int) -> None:
        description = self.description
        call = self._call("interaction", "Interaction", model)
        self._other(call, "cat")
        if description.arch_interaction_op == "cat":
            return
        vectors = len(description.arch_embedding_size) + 1
        pairs = MatrixProduct(vectors, vectors, description.arch_sparse_feature_size, samples)
        self._operation("gemm", "bmm", call, pairs)
        self._other(call, "index")
        self._other(call, "cat")

    def _call(self, path: str, name: str, caller: int) -> int:
        self.calls.append(Call(path, name, 0, caller, len(self.operations)))
        return len(self.calls) - 1

    def _operation(self, kind: str, name: str, caller: int, shape: MatrixProduct | Bags) -> None:
        self.operations.append(Operation(kind, name, caller, shape))

    def _other(self, caller: int, name: str) -> None:
        key = (caller, name)
        self.others[key] = self.others.get(key, 0) + 1


# ---- The program of a job: what one inference step does, from its description or from running its model once --------


def make_program(job: Job, patterns: frozenset[str]) -> ModelProgram:
    """The job's program in this process, with the zeros of the kinds of operation in `patterns`.

    No framework is needed where the description suffices. What the model prints goes to stderr. Raises SondaError in
    one line when the model fails.
    """
    workload = describe(job.workload, job.options)
    program = None if patterns else program_from_description(workload)
    if program is not None:
        return program
    try:
        with contextlib.redirect_stdout(sys.stderr):
            return capture_program(job, workload, patterns)[1]
    except SondaError:
        raise
    except Exception as error:
        raise SondaError(describe_failure(error), "check --input and the workload's options") from error


def capture_program(job: Job, workload: WorkloadProtocol, patterns: frozenset[str]) -> tuple[Task, ModelProgram]:
    """Build the model for inference and run it once; returns its task and the captured program."""
    from sonda.accelerators.operations.capture import capture

    try:
        import torch
    except ImportError:
        raise MissingExtraError("PyTorch", "torch") from None
    if job.threads:
        torch.set_num_threads(job.threads)
    whole = program_from_description(workload)
    if whole is None or not isinstance(workload, Recommender) or job.framework != "torch":
        task = workload.build(job.framework, False, job.seed)
        task.model.eval()
        return task, capture(task.model, task.infer, patterns).program
    task = workload.first_step()
    program = capture(task.model, task.infer, patterns).program
    # The tables of this model hold only what is looked up; which rows these are, the description knows.
    operations = [
        dataclasses.replace(operation, shape=described.shape) if isinstance(described.shape, Bags) else operation
        for operation, described in zip(program.operations, whole.operations, strict=True)
    ]
    return task, dataclasses.replace(program, operations=tuple(operations))
