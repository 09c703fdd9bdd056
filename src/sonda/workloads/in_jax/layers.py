"""Layers of the built-in networks in JAX: from a structure to a function of weights and inputs.

Images have their channels last, as programs in JAX do; XLA on a processor would turn them round otherwise. Every layer
runs in a `jax.named_scope` of its path, by which its operations are found again in what XLA makes of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from sonda.workloads.networks.layers import (
    GELU,
    AdaptiveAvgPool2d,
    Attention,
    BatchNorm2d,
    Block,
    Conv2d,
    Flatten,
    Gpt,
    LayerNorm,
    Linear,
    MaxPool2d,
    Node,
    ReLU,
    Residual,
    Sequential,
    Sigmoid,
    Softmax,
    Tanh,
    join,
)

Arrays = Mapping[str, Any]
"""Weights by the names of PyTorch's `state_dict`; kernels of convolutions as height x width x input x output."""
Cache = tuple[tuple[Any, Any], ...]
"""Keys and values of every block: batch x heads x context x features."""
PRODUCTS = {"float32": "highest", "float64": "highest", "tf32": "tensorfloat32"}
"""Precision of products: JAX lets a GPU use TF32 unless told otherwise."""
SIMPLE = {
    ReLU: jax.nn.relu,
    Sigmoid: jax.nn.sigmoid,
    Tanh: jnp.tanh,
    Softmax: jax.nn.softmax,
    GELU: lambda values: jax.nn.gelu(values, approximate=False),
}


@dataclass
class Forward:
    """One forward through a network. `narrow` is the type of products where it is not that of the weights."""

    weights: Arrays
    train: bool
    precision: Any = None
    """Of products, as `lax.Precision` is written."""
    narrow: Any = None
    running: dict[str, Any] = field(default_factory=dict)
    """In training: the running values of normalisations as this batch leaves them."""

    def __call__(self, node: Node, path: str, values: Any) -> Any:
        """What a node makes of its input."""
        if isinstance(node, Sequential):
            for name, child in node.children():
                values = self(child, join(path, name), values)
            return values
        with jax.named_scope(path):
            return self._layer(node, path, values)

    def _layer(self, node: Node, path: str, values: Any) -> Any:
        if isinstance(node, Residual):
            through = self(node.body, f"{path}.body", values) + self(node.shortcut, f"{path}.shortcut", values)
            return self(node.activation, f"{path}.activation", through)
        if isinstance(node, Linear):
            return self._linear(node, path, values)
        if isinstance(node, Conv2d):
            return self._convolution(node, path, values)
        if isinstance(node, BatchNorm2d):
            return self._batch_norm(node, path, values)
        if isinstance(node, LayerNorm):
            return self._layer_norm(node, path, values)
        if isinstance(node, MaxPool2d):
            return _max_pool(node, values)
        if isinstance(node, AdaptiveAvgPool2d):
            return values.mean(axis=(1, 2), keepdims=True)
        if isinstance(node, Flatten):
            # The weights behind it are in PyTorch's order: channels first.
            return values.transpose(0, 3, 1, 2).reshape(len(values), -1)
        return SIMPLE[type(node)](values)

    def _weight(self, path: str, name: str) -> Any:
        return self.weights[f"{path}.{name}"]

    def _short(self, *values: Any) -> tuple[Any, ...]:
        return values if self.narrow is None else tuple(value.astype(self.narrow) for value in values)

    def _linear(self, node: Linear, path: str, values: Any) -> Any:
        weight = self.weights[node.shared] if node.shared else self._weight(path, "weight")
        values, weight = self._short(values, weight)
        result = jnp.matmul(values, weight.T, precision=self.precision)
        return result + self._weight(path, "bias").astype(result.dtype) if node.bias else result

    def _convolution(self, node: Conv2d, path: str, values: Any) -> Any:
        values, weight = self._short(values, self._weight(path, "weight"))
        padding = ((node.padding, node.padding),) * 2
        result = lax.conv_general_dilated(
            values, weight, (node.stride, node.stride), padding, dimension_numbers=("NHWC", "HWIO", "NHWC"),
            precision=self.precision,
        )  # fmt: skip
        return result + self._weight(path, "bias").astype(result.dtype) if node.bias else result

    def _batch_norm(self, node: BatchNorm2d, path: str, values: Any) -> Any:
        kind, wide = values.dtype, _wide(values)
        if self.train:
            mean, variance = wide.mean(axis=(0, 1, 2)), wide.var(axis=(0, 1, 2))
            count = wide.size // node.channels
            unbiased = variance * (count / (count - 1))
            for name, batch in (("running_mean", mean), ("running_var", unbiased)):
                before = self._weight(path, name)
                moved = before + node.momentum * (batch.astype(before.dtype) - before)
                self.running[f"{path}.{name}"] = lax.stop_gradient(moved)
        else:
            mean, variance = _wide(self._weight(path, "running_mean")), _wide(self._weight(path, "running_var"))
        scale = _wide(self._weight(path, "weight")) * lax.rsqrt(variance + node.epsilon)
        return ((wide - mean) * scale + _wide(self._weight(path, "bias"))).astype(kind)

    def _layer_norm(self, node: LayerNorm, path: str, values: Any) -> Any:
        kind, wide = values.dtype, _wide(values)
        mean, variance = wide.mean(axis=-1, keepdims=True), wide.var(axis=-1, keepdims=True)
        normed = (wide - mean) * lax.rsqrt(variance + node.epsilon)
        return (normed * _wide(self._weight(path, "weight")) + _wide(self._weight(path, "bias"))).astype(kind)

    # ---- the transformer ------------------------------------------------------------------------------------

    def gpt(self, node: Gpt, tokens: Any, cache: Cache | None = None, first: Any = 0) -> tuple[Any, Cache]:
        """Scores of every next token; with a cache, of the one after the last only, and the cache as it is then.

        `first`: the position of the first token.
        """
        with jax.named_scope("tokens"):
            features = self.weights["tokens.weight"][tokens]
        with jax.named_scope("positions"):
            places = self.weights["positions.weight"][first + jnp.arange(tokens.shape[1])]
        features = features + places
        kept = []
        for number, (name, block) in enumerate(node.blocks.children()):
            assert isinstance(block, Block)
            before = cache[number] if cache is not None else None
            features, after = self._block(block, f"blocks.{name}", features, before, first)
            kept.append(after)
        if cache is not None:
            features = features[:, -1:]
        return self(node.head, "head", self(node.norm, "norm", features)), tuple(kept)

    def _block(self, node: Block, path: str, tokens: Any, cache: Any, first: Any) -> tuple[Any, Any]:
        with jax.named_scope(path):
            normed = self(node.before_attention, f"{path}.before_attention", tokens)
            seen, kept = self._attention(node.attention, f"{path}.attention", normed, cache, first)
            tokens = tokens + seen
            normed = self(node.before_perceptron, f"{path}.before_perceptron", tokens)
            return tokens + self(node.perceptron, f"{path}.perceptron", normed), kept

    def _attention(self, node: Attention, path: str, tokens: Any, cache: Any, first: Any) -> tuple[Any, Any]:
        """Shapes are fixed when it is compiled: with a cache, scores of places still to come are left out by a mask."""
        with jax.named_scope(path):
            batch, length, width = tokens.shape
            shape = (batch, length, 3, node.heads, width // node.heads)
            split = self(node.project, f"{path}.project", tokens).reshape(shape).transpose(2, 0, 3, 1, 4)
            queries, keys, values = split
            if cache is not None:
                # Places of one type, whatever type JAX gives to numbers.
                place = tuple(jnp.asarray(number, jnp.int32) for number in (0, 0, first, 0))
                keys, values = (
                    lax.dynamic_update_slice(before, new.astype(before.dtype), place)
                    for before, new in zip(cache, (keys, values), strict=True)
                )
            kept = (keys, values)
            queries, keys, values = self._short(queries, keys, values)
            scores = jnp.einsum("bhqd,bhkd->bhqk", queries, keys, precision=self.precision)
            scores = _wide(scores) / np.sqrt(width // node.heads)
            seen = jnp.arange(keys.shape[2])[None, :] <= first + jnp.arange(length)[:, None]
            shares = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), axis=-1).astype(values.dtype)
            looked = jnp.einsum("bhqk,bhkd->bhqd", shares, values, precision=self.precision)
            together = looked.transpose(0, 2, 1, 3).reshape(batch, length, width)
            return self(node.output, f"{path}.output", together), kept


def _max_pool(node: MaxPool2d, values: Any) -> Any:
    sides = ((0, 0), (node.padding, node.padding), (node.padding, node.padding), (0, 0))
    window, steps = (1, node.kernel, node.kernel, 1), (1, node.stride, node.stride, 1)
    return lax.reduce_window(values, -jnp.inf, lax.max, window, steps, sides)


def _wide(values: Any) -> Any:
    """What sums many values does so in float32 at least."""
    return values.astype(jnp.float32) if values.dtype in (jnp.bfloat16, jnp.float16) else values


def cross_entropy(scores: Any, classes: Any) -> Any:
    """The mean over all rows (and positions)."""
    chances = jax.nn.log_softmax(_wide(scores), axis=-1)
    return -jnp.take_along_axis(chances, classes[..., None], axis=-1).mean()


def mean_squared_error(shares: Any, targets: Any) -> Any:
    return jnp.square(_wide(shares) - targets).mean()
