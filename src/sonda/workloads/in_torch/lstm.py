"""The LSTM in PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from sonda.workloads.in_torch.task import Examples, TorchTask, make_examples_task, make_sgd, seed_generators
from sonda.workloads.networks.examples import DISTINCT_BATCHES

if TYPE_CHECKING:
    from sonda.workloads.networks.lstm import Recurrent


class RecurrentNet(nn.Module):
    """Embedding if there is a vocabulary, LSTM layers, a dense layer on the last element's state."""

    def __init__(self, description: Recurrent) -> None:
        super().__init__()
        self.embedding = None
        if description.vocabulary:
            self.embedding = nn.Embedding(description.vocabulary, description.features)
        self.lstm = nn.LSTM(description.features, description.hidden, description.layers, batch_first=True)
        self.head = nn.Linear(description.hidden, description.classes)

    def forward(self, sequences: Tensor) -> Tensor:
        if self.embedding is not None:
            sequences = self.embedding(sequences)
        states, _ = self.lstm(sequences)
        return self.head(states[:, -1])


def build(description: Recurrent, train: bool, seed: int) -> TorchTask:
    generator = seed_generators(seed)
    model = RecurrentNet(description)
    count = DISTINCT_BATCHES * description.batch
    if description.vocabulary:
        inputs = torch.randint(description.vocabulary, (count, description.length), generator=generator)
    else:
        inputs = torch.randn(count, description.length, description.features, generator=generator)
    targets = torch.randint(description.classes, (count,), generator=generator)
    return make_examples_task(
        TorchTask,
        model,
        Examples((inputs,), targets),
        description.batch,
        train,
        seed,
        nn.CrossEntropyLoss(),
        make_sgd(model, description.learning_rate),
        tokens=description.batch * description.length if description.vocabulary else 0,
    )
