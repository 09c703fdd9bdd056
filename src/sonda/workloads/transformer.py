"""`transformer`: a small GPT."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sonda.record.errors import SondaError
from sonda.workloads.description import Description, number, option, whole

if TYPE_CHECKING:
    from sonda.record.protocols import Task


@dataclass(frozen=True)
class Transformer(Description):
    """Training predicts every next token of `length` tokens.

    Inference reads a prompt of `length` tokens at once (prefill, which gives the first new token), then takes
    `generate` steps of one token each (decode), always the likeliest. A step therefore processes
    `batch x length` tokens in training and `batch x (length + generate)` in inference.
    """

    batch: int = option(4, whole(), "sequences in a step")
    length: int = option(64, whole(), "tokens of a training sequence, and of a prompt")
    generate: int = option(16, whole(), "single-token steps after the prompt")
    layers: int = option(4, whole(), "blocks of attention and perceptron")
    width: int = option(256, whole(), "features of a token")
    heads: int = option(4, whole(), "heads of attention")
    vocabulary: int = option(4096, whole(2), "tokens the model knows")
    learning_rate: float = option(3e-4, number(), "of AdamW")

    @property
    def name(self) -> str:
        return "transformer"

    @property
    def context(self) -> int:
        """Positions the model knows."""
        return self.length + self.generate

    def check(self) -> None:
        if self.width % self.heads:
            raise SondaError(
                f"transformer: width {self.width} cannot be shared by {self.heads} heads",
                "use a width that is a multiple of heads",
            )

    def in_torch(self, train: bool, seed: int) -> Task:
        from sonda.workloads.in_torch.transformer import build

        return build(self, train, seed)
