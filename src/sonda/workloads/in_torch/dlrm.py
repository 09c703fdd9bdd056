"""DLRM in PyTorch, equal to Meta's program in inputs, weights and losses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from sonda.record.errors import SondaError
from sonda.workloads.in_torch.task import EndlessSampler, TorchTask, make_sgd
from sonda.workloads.networks.dlrm_draws import DlrmStream, DlrmWeights, StreamBatch

if TYPE_CHECKING:
    from sonda.workloads.networks.dlrm import Recommender

DlrmBatch = tuple[tuple[Tensor, Tensor, list[Tensor]], Tensor]


class Interaction(nn.Module):
    """Combines the dense vector and the bags' sums: the dense vector and the products of all pairs, or all in a row."""

    def __init__(self, description: Recommender) -> None:
        super().__init__()
        self.concatenate = description.arch_interaction_op == "cat"
        vectors = len(description.arch_embedding_size) + 1
        rows, columns = torch.tril_indices(vectors, vectors, 0 if description.arch_interaction_itself else -1)
        self.register_buffer("rows", rows, persistent=False)
        self.register_buffer("columns", columns, persistent=False)

    def forward(self, dense: Tensor, sums: list[Tensor]) -> Tensor:
        together = torch.cat([dense, *sums], dim=1)
        if self.concatenate:
            return together
        vectors = together.view(len(dense), -1, dense.shape[1])
        products = torch.bmm(vectors, vectors.transpose(1, 2))
        return torch.cat([dense, products[:, self.rows, self.columns]], dim=1)


class Dlrm(nn.Module):
    """Bottom perceptron and embedding bags, interaction, top perceptron."""

    def __init__(self, description: Recommender, wanted: Sequence[np.ndarray] = ()) -> None:
        """`wanted` are the rows of each table to keep, ascending; by default all."""
        super().__init__()
        weights = DlrmWeights(description.numpy_rand_seed)
        columns = description.arch_sparse_feature_size
        self.embeddings = nn.ModuleList()
        for number, rows in enumerate(description.arch_embedding_size):
            table = weights.table_rows(rows, columns, wanted[number]) if wanted else weights.table(rows, columns)
            self.embeddings.append(
                nn.EmbeddingBag(len(table), columns, mode="sum", sparse=True, _weight=torch.from_numpy(table))
            )
        self.bottom = perceptron(weights, description.arch_mlp_bot, nn.ReLU())
        self.interaction = Interaction(description)
        self.top = perceptron(weights, (description.top_input, *description.arch_mlp_top), nn.Sigmoid())
        self.threshold = description.loss_threshold

    def forward(self, dense: Tensor, offsets: Tensor, indices: list[Tensor]) -> Tensor:
        """Click probabilities, n x 1. `offsets` is tables x n, `indices` one tensor for each table."""
        bottom = self.bottom(dense)
        sums = [table(rows, starts) for table, rows, starts in zip(self.embeddings, indices, offsets, strict=True)]
        prediction = self.top(self.interaction(bottom, sums))
        if self.threshold:
            prediction = prediction.clamp(self.threshold, 1 - self.threshold)
        return prediction


def perceptron(weights: DlrmWeights, widths: tuple[int, ...], last: nn.Module) -> nn.Sequential:
    """Dense layers with ReLU between them and `last` at the end."""
    layers: list[nn.Module] = []
    for weight, bias in weights.perceptron(widths):
        layer = nn.Linear(weight.shape[1], weight.shape[0], device="meta")
        layer.weight = nn.Parameter(torch.from_numpy(weight))
        layer.bias = nn.Parameter(torch.from_numpy(bias))
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers[:-1], last)


class StreamDataset(Dataset):
    """Whole batches of a stream by number, made on demand, as in the loader of DLRM's program.

    Batches are drawn one after the other. The next batch is cheap; an earlier one is drawn from the beginning again.
    """

    def __init__(self, stream: DlrmStream) -> None:
        self.stream = stream
        self._next = 0
        self._batches: Iterator[StreamBatch] = iter(())

    def __len__(self) -> int:
        """Number of full batches, at least 1."""
        return max(1, self.stream.data_size // self.stream.mini_batch_size)

    def __getitem__(self, number: int) -> DlrmBatch:
        if number < self._next or self._next == 0:
            self._batches = self.stream.batches()
            self._next = 0
        while True:
            batch = next(self._batches)
            self._next += 1
            if self._next > number:
                break
        indices = [torch.from_numpy(rows) for rows in batch.indices]
        inputs = (torch.from_numpy(batch.dense), torch.from_numpy(batch.offsets), indices)
        return inputs, torch.from_numpy(batch.targets)


def build(description: Recommender, train: bool) -> TorchTask:
    """The task of a DLRM. Raises SondaError when the tables do not fit into the free memory."""
    require_memory(description)
    # DLRM's seed determines weights and inputs. PyTorch's generator is not used, but has a known state.
    torch.manual_seed(description.numpy_rand_seed)
    model = Dlrm(description)
    dataset = StreamDataset(description.stream())
    inputs, _ = dataset[0]
    return _task(description, model.train(train), inputs, dataset)


def _task(
    description: Recommender,
    model: Dlrm,
    inputs: tuple[Tensor, Tensor, list[Tensor]],
    dataset: StreamDataset | FirstBatch,
) -> TorchTask:
    return TorchTask(
        model,
        inputs,
        dataset,
        EndlessSampler(len(dataset), 0, shuffled=False),
        None,
        nn.MSELoss() if description.loss_function == "mse" else nn.BCELoss(),
        make_sgd(model, description.learning_rate),
        samples=description.samples,
    )


class FirstBatch(Dataset):
    """The first batch of a stream. Its indices count only the rows that it looks up in each table."""

    def __init__(self, stream: DlrmStream) -> None:
        (dense, offsets, indices), self._targets = StreamDataset(stream)[0]
        self.wanted = [np.unique(rows.numpy()) for rows in indices]
        """The rows that it looks up in each table, ascending."""
        places = [np.searchsorted(wanted, rows.numpy()) for wanted, rows in zip(self.wanted, indices, strict=True)]
        self.inputs = (dense, offsets, [torch.from_numpy(place) for place in places])

    def __len__(self) -> int:
        return 1

    def __getitem__(self, number: int) -> DlrmBatch:
        return self.inputs, self._targets


def build_first_step(description: Recommender) -> TorchTask:
    """The first inference step of the model with tables of any size: only the rows that it looks up are kept.

    All its values are those of the whole model; only the indices of rows differ.
    """
    torch.manual_seed(description.numpy_rand_seed)
    first = FirstBatch(description.stream())
    model = Dlrm(description, first.wanted)
    return _task(description, model.eval(), first.inputs, first)


def available_memory() -> int:
    """Bytes that a program can have before the machine swaps, as the kernel estimates them."""
    (line,) = (line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable:"))
    return int(line.split()[1]) << 10


def require_memory(description: Recommender) -> None:
    free = available_memory()
    if description.table_bytes > free:
        raise SondaError(
            f"dlrm: the embedding tables take {description.table_bytes / 1e9:.1f} GB, {free / 1e9:.1f} GB are free",
            "use fewer rows, fewer tables or fewer columns",
        )
