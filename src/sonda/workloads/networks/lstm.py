"""`lstm`: a stack of LSTM layers that reads a sequence and names its class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sonda.workloads.description import Description, number, option, whole

if TYPE_CHECKING:
    from sonda.record.protocols import Task


@dataclass(frozen=True)
class Recurrent(Description):
    """Reads vectors of `features` numbers, or, with a vocabulary, tokens that an embedding turns into such vectors."""

    batch: int = option(16, whole(), "sequences in a step")
    length: int = option(32, whole(), "elements of a sequence")
    features: int = option(64, whole(), "numbers that describe one element")
    vocabulary: int = option(0, whole(0), "tokens the embedding knows; 0 for no embedding")
    hidden: int = option(128, whole(), "width of the hidden state")
    layers: int = option(2, whole(), "LSTM layers")
    classes: int = option(10, whole(), "width of the output")
    learning_rate: float = option(0.05, number(), "of SGD")

    @property
    def name(self) -> str:
        return "lstm"

    def in_torch(self, train: bool, seed: int) -> Task:
        from sonda.workloads.in_torch.lstm import build

        return build(self, train, seed)
