"""A small GPT in PyTorch, with a cache of keys and values for generation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sonda.record.protocols import Mark
from sonda.workloads.in_torch.task import Endless, TorchTask, same_examples, with_weights

if TYPE_CHECKING:
    from sonda.workloads.transformer import Transformer


class LayerCache:
    """Keys and values of one layer (batch x heads x context x features), filled from the front."""

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        self.keys = keys
        self.values = values
        self.length = 0

    def extend(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Append, and return everything so far. The whole prompt comes first, then one token at a time."""
        first, self.length = self.length, self.length + keys.shape[2]
        self.keys[:, :, first : self.length] = keys
        self.values[:, :, first : self.length] = values
        return self.keys[:, :, : self.length], self.values[:, :, : self.length]


class Attention(nn.Module):
    """Each token looks at itself and at those before it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, tokens: Tensor, cache: LayerCache | None) -> Tensor:
        batch, length, width = tokens.shape
        split = self.project(tokens).view(batch, length, 3, self.heads, width // self.heads)
        queries, keys, values = split.permute(2, 0, 3, 1, 4)
        if cache is not None:
            keys, values = cache.extend(keys, values)
        # A single token comes after all that is cached and sees everything; several begin the sequence.
        seen = F.scaled_dot_product_attention(queries, keys, values, is_causal=length > 1)
        return self.output(seen.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    """Attention and perceptron, each after a normalisation and added to its input."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.before_attention = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.before_perceptron = nn.LayerNorm(width)
        self.perceptron = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, tokens: Tensor, cache: LayerCache | None) -> Tensor:
        tokens = tokens + self.attention(self.before_attention(tokens), cache)
        return tokens + self.perceptron(self.before_perceptron(tokens))


class Gpt(nn.Module):
    """GPT-2's arrangement: learnt positions, normalisation first, output weights shared with the embedding."""

    def __init__(self, description: Transformer) -> None:
        super().__init__()
        self.context = description.context
        width = description.width
        self.tokens = nn.Embedding(description.vocabulary, width)
        self.positions = nn.Embedding(description.context, width)
        self.blocks = nn.ModuleList(Block(width, description.heads) for _ in range(description.layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, description.vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def empty_cache(self, batch: int) -> list[LayerCache]:
        """A cache for every layer, with room for the whole context."""
        heads = self.blocks[0].attention.heads
        weight = self.tokens.weight
        shape = (batch, heads, self.context, weight.shape[1] // heads)
        return [LayerCache(weight.new_empty(shape), weight.new_empty(shape)) for _ in self.blocks]

    def forward(self, tokens: Tensor, cache: list[LayerCache] | None = None) -> Tensor:
        """Scores of every next token; with a cache, of the token after the last one only."""
        first = cache[0].length if cache else 0
        positions = torch.arange(first, first + tokens.shape[1], device=tokens.device)
        features = self.tokens(tokens) + self.positions(positions)
        for number, block in enumerate(self.blocks):
            features = block(features, cache[number] if cache else None)
        if cache:
            features = features[:, -1:]
        return self.head(self.norm(features))


class NextTokenLoss(nn.CrossEntropyLoss):
    """Cross entropy over all positions of all sequences."""

    def forward(self, scores: Tensor, targets: Tensor) -> Tensor:
        return super().forward(scores.flatten(0, 1), targets.flatten())


class GenerationTask(TorchTask):
    """Inference generates: the prompt at once, then one token at a time, always the likeliest."""

    generate: int

    def infer(self, mark: Mark) -> Tensor:
        """The new tokens, batch x (1 + generate)."""
        (prompt,) = self.inputs
        with torch.no_grad():
            with mark("prefill"):
                cache = self.model.empty_cache(len(prompt))
                token = self.model(prompt, cache).argmax(-1)
            generated = [token]
            with mark("decode"):
                for _ in range(self.generate):
                    token = self.model(token, cache).argmax(-1)
                    generated.append(token)
            return torch.cat(generated, dim=1)


def build(description: Transformer, train: bool, seed: int) -> GenerationTask:
    model = with_weights(Gpt(description), description, seed)
    examples = same_examples(description, seed)
    task = GenerationTask(
        model.train(train),
        examples.first(description.batch),
        examples,
        Endless(len(examples), seed),
        description.batch,
        NextTokenLoss(),
        lambda: torch.optim.AdamW(model.parameters(), lr=description.learning_rate),
        samples=description.batch,
        tokens=description.batch * (description.length if train else description.context),
    )
    task.generate = description.generate
    if not train:
        task.phase_tokens = {
            "prefill": description.batch * description.length,
            "decode": description.batch * description.generate,
        }
    return task
