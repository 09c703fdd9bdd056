"""Layers of the built-in networks in PyTorch: modules built from a network's structure.

Classes and children have the names of the structure's nodes, because runs show them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sonda.workloads.networks import layers
from sonda.workloads.networks.layers import Layer, Linear, walk_layers


def build_model(structure: Layer) -> nn.Module:
    """The module of a whole network, with PyTorch's own initial weights. Layers that share weights share one tensor."""
    model = build_module(structure)
    for path, node in walk_layers(structure):
        if isinstance(node, Linear) and node.shared:
            model.get_submodule(path).weight = model.get_parameter(node.shared)
    return model


def build_module(node: Layer) -> nn.Module:
    """The module of a node with the modules of its children."""
    module = MAKERS[type(node)](node)
    for name, child in node.children():
        module.add_module(name, build_module(child))
    return module


@cache
def make_class(name: str, base: type[nn.Module]) -> type[nn.Module]:
    """A subclass of `base` with this name; `base` itself where that is its name."""
    return base if base.__name__ == name else type(name, (base,), {"__module__": __name__})


class Chain(nn.Sequential):
    """A sequence with its own forward, because `Module.compile` skips forwards of PyTorch's own classes."""

    def forward(self, values: Tensor) -> Tensor:
        for module in self:
            values = module(values)
        return values


def make_sequential(name: str) -> nn.Sequential:
    """PyTorch's own class for the name `Sequential`, else a chain of that name."""
    return nn.Sequential() if name == "Sequential" else make_class(name, Chain)()


class Residual(nn.Module):
    """Adds the outputs of its body and of its shortcut."""

    def forward(self, maps: Tensor) -> Tensor:
        return self.activation(self.body(maps) + self.shortcut(maps))


# ---- the transformer ------------------------------------------------------------------------------------------------


class LayerCache:
    """Keys and values of one layer (batch x heads x context x features), filled from the front."""

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        self.keys = keys
        self.values = values
        self.length = 0

    def extend(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Append, and return everything cached. The whole prompt comes first, then one token at a time."""
        first, self.length = self.length, self.length + keys.shape[2]
        self.keys[:, :, first : self.length] = keys
        self.values[:, :, first : self.length] = values
        return self.keys[:, :, : self.length], self.values[:, :, : self.length]


class Attention(nn.Module):
    """Causal self-attention: each token attends to itself and to those before it."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads

    def forward(self, tokens: Tensor, cache: LayerCache | None) -> Tensor:
        batch, length, width = tokens.shape
        split = self.project(tokens).view(batch, length, 3, self.heads, width // self.heads)
        queries, keys, values = split.permute(2, 0, 3, 1, 4)
        if cache is not None:
            keys, values = cache.extend(keys, values)
        # A single token follows the cached ones and attends to all; several tokens begin the sequence.
        attended = F.scaled_dot_product_attention(queries, keys, values, is_causal=length > 1)
        return self.output(attended.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    """Attention and perceptron, each after a normalisation and added to its input."""

    def forward(self, tokens: Tensor, cache: LayerCache | None) -> Tensor:
        tokens = tokens + self.attention(self.before_attention(tokens), cache)
        return tokens + self.perceptron(self.before_perceptron(tokens))


class Gpt(nn.Module):
    """Embeds tokens and their positions, and passes them through the blocks."""

    def empty_cache(self, batch: int) -> list[LayerCache]:
        """A cache for every layer, with room for the whole context."""
        heads = self.blocks[0].attention.heads
        weight = self.tokens.weight
        shape = (batch, heads, self.positions.num_embeddings, weight.shape[1] // heads)
        return [LayerCache(weight.new_empty(shape), weight.new_empty(shape)) for _ in self.blocks]

    def forward(self, tokens: Tensor, cache: list[LayerCache] | None = None) -> Tensor:
        """Scores of the next token at every position; with a cache, after the last position only."""
        first = cache[0].length if cache else 0
        positions = torch.arange(first, first + tokens.shape[1], device=tokens.device)
        features = self.tokens(tokens) + self.positions(positions)
        for number, block in enumerate(self.blocks):
            features = block(features, cache[number] if cache else None)
        if cache:
            features = features[:, -1:]
        return self.head(self.norm(features))


MAKERS: dict[type[Layer], Callable[[Any], nn.Module]] = {
    layers.Linear: lambda node: nn.Linear(node.inputs, node.outputs, bias=node.bias),
    layers.Conv2d: lambda node: nn.Conv2d(
        node.inputs, node.outputs, node.kernel, node.stride, node.padding, bias=node.bias
    ),
    layers.BatchNorm2d: lambda node: nn.BatchNorm2d(node.channels, node.epsilon, node.momentum),
    layers.LayerNorm: lambda node: nn.LayerNorm(node.width, node.epsilon),
    layers.Embedding: lambda node: nn.Embedding(node.rows, node.width),
    layers.MaxPool2d: lambda node: nn.MaxPool2d(node.kernel, node.stride, node.padding),
    layers.AdaptiveAvgPool2d: lambda node: nn.AdaptiveAvgPool2d(1),
    layers.Flatten: lambda node: nn.Flatten(),
    layers.ReLU: lambda node: nn.ReLU(inplace=node.in_place),
    layers.Sigmoid: lambda node: nn.Sigmoid(),
    layers.Tanh: lambda node: nn.Tanh(),
    layers.GELU: lambda node: nn.GELU(),
    layers.Softmax: lambda node: nn.Softmax(dim=1),
    layers.Sequential: lambda node: make_sequential(node.class_name),
    layers.ModuleList: lambda node: nn.ModuleList(),
    layers.Residual: lambda node: make_class(node.class_name, Residual)(),
    layers.Attention: lambda node: Attention(node.heads),
    layers.Block: lambda node: Block(),
    layers.Gpt: lambda node: Gpt(),
}
"""Makers of a node's module, without its children."""
