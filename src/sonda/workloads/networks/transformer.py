"""`transformer`: a small GPT."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sonda.record.errors import SondaError
from sonda.workloads.description import number, option, whole
from sonda.workloads.networks.layers import (
    GELU,
    Attention,
    Block,
    Embedding,
    Gpt,
    LayerNorm,
    Linear,
    ModuleList,
    Shape,
    make_sequential,
)
from sonda.workloads.networks.network import Network

if TYPE_CHECKING:
    import numpy as np

    from sonda.record.protocols import Task


@dataclass(frozen=True)
class Transformer(Network):
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

    @property
    def classes(self) -> int:
        return self.vocabulary

    @property
    def optimizer(self) -> str:
        return "adamw"

    def structure(self) -> Gpt:
        """GPT-2's arrangement: learnt positions, normalisation first, output weights shared with the embedding."""
        width = self.width

        def dense(inputs: int, outputs: int) -> Linear:
            return Linear(inputs, outputs, initial="small")

        block = Block(
            LayerNorm(width),
            Attention(self.heads, dense(width, 3 * width), dense(width, width)),
            LayerNorm(width),
            make_sequential(dense(width, 4 * width), GELU(), dense(4 * width, width)),
        )
        return Gpt(
            Embedding(self.vocabulary, width),
            Embedding(self.context, width),
            ModuleList((block,) * self.layers),
            LayerNorm(width),
            Linear(width, self.vocabulary, bias=False, initial="small", shared="tokens.weight"),
        )

    def input_shape(self) -> Shape:
        return self.batch, self.length

    def draw_examples(self, generator: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Uniform tokens as int64; the targets are the next ones."""
        text = generator.integers(self.vocabulary, size=(count, self.length + 1))
        return text[:, :-1], text[:, 1:]

    def step_tokens(self, train: bool) -> tuple[int, dict[str, int]]:
        if train:
            return self.batch * self.length, {}
        return self.batch * self.context, {"prefill": self.batch * self.length, "decode": self.batch * self.generate}

    def in_torch(self, train: bool, seed: int) -> Task:
        from sonda.workloads.in_torch.network import build_generator

        return build_generator(self, train, seed)
