"""Programs of workloads from their descriptions alone: no framework, no weights, no tables."""

from __future__ import annotations

import itertools
from functools import lru_cache

from sonda.accelerators.operation import Bags, Call, MatrixProduct, Operation, Program
from sonda.record.protocols import Workload
from sonda.workloads.recommender import Recommender


def described_program(workload: Workload) -> Program | None:
    """The program of one inference step as a capture of the model would give it; None where only a capture can."""
    return _dlrm(workload) if isinstance(workload, Recommender) else None


@lru_cache(maxsize=16)
def _dlrm(description: Recommender) -> Program:
    """Remembered, because a study asks for the same workload once for each of its variants."""
    return _Dlrm(description).program()


class _Dlrm:
    """Writes DLRM's calls and operations down in the order in which the model makes them."""

    def __init__(self, description: Recommender) -> None:
        self.description = description
        self.calls: list[Call] = []
        self.operations: list[Operation] = []
        self.others: dict[tuple[int, str], int] = {}

    def program(self) -> Program:
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
        return Program(tuple(self.calls), tuple(self.operations), phases, self.others)

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
