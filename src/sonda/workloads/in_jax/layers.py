"""Layers of the built-in networks in JAX: from a structure to a function of weights and inputs.

Images have their channels last, as in most programs in JAX; otherwise XLA would transpose them on a processor. Every
layer runs in a `jax.named_scope` of its path, by which its operations are found in the program that XLA compiles.
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
    Layer,
    LayerNorm,
    Linear,
    MaxPool2d,
    ReLU,
    Residual,
    Sequential,
    Sigmoid,
    Softmax,
    Tanh,
    join_path,
)

Arrays = Mapping[str, Any]
"""Weights by the names of PyTorch's `state_dict`; kernels of convolutions as height x width x input x output."""
Cache = tuple[tuple[Any, Any], ...]
"""Keys and values of every block: batch x heads x context x features."""
PRODUCT_PRECISION = {"float32": "highest", "float64": "highest", "tf32": "tensorfloat32"}
"""Precision of products by the run's precision: by default JAX lets a GPU use TF32."""
SIMPLE = {
    ReLU: jax.nn.relu,
    Sigmoid: jax.nn.sigmoid,
    Tanh: jnp.tanh,
    Softmax: jax.nn.softmax,
    GELU: lambda values: jax.nn.gelu(values, approximate=False),
}


@dataclass
class Forward:
    """One forward pass through a network. `narrow` is the type of products where it is not that of the weights."""

    weights: Arrays
    train: bool
    precision: Any = None
    """The precision of products, as `lax.Precision` is written."""
    narrow: Any = None
    running: dict[str, Any] = field(default_factory=dict)
    """In training: the running values of normalisations after this batch."""

    def __call__(self, layer: Layer, path: str, values: Any) -> Any:
        """The output of a layer."""
        if isinstance(layer, Sequential):
            for name, child in layer.children():
                values = self(child, join_path(path, name), values)
            return values
        with jax.named_scope(path):
            return self._layer(layer, path, values)

    def _layer(self, layer: Layer, path: str, values: Any) -> Any:
        if isinstance(layer, Residual):
            total = self(layer.body, f"{path}.body", values) + self(layer.shortcut, f"{path}.shortcut", values)
            return self(layer.activation, f"{path}.activation", total)
        if isinstance(layer, Linear):
            return self._linear(layer, path, values)
        if isinstance(layer, Conv2d):
            return self._convolution(layer, path, values)
        if isinstance(layer, BatchNorm2d):
            return self._batch_norm(layer, path, values)
        if isinstance(layer, LayerNorm):
            return self._layer_norm(layer, path, values)
        if isinstance(layer, MaxPool2d):
            return _max_pool(layer, values)
        if isinstance(layer, AdaptiveAvgPool2d):
            return values.mean(axis=(1, 2), keepdims=True)
        if isinstance(layer, Flatten):
            # The weights behind it are in PyTorch's order: channels first.
            return values.transpose(0, 3, 1, 2).reshape(len(values), -1)
        return SIMPLE[type(layer)](values)

    def _weight(self, path: str, name: str) -> Any:
        return self.weights[f"{path}.{name}"]

    def _narrow_all(self, *values: Any) -> tuple[Any, ...]:
        return values if self.narrow is None else tuple(value.astype(self.narrow) for value in values)

    def _linear(self, layer: Linear, path: str, values: Any) -> Any:
        weight = self.weights[layer.shared] if layer.shared else self._weight(path, "weight")
        values, weight = self._narrow_all(values, weight)
        result = jnp.matmul(values, weight.T, precision=self.precision)
        return result + self._weight(path, "bias").astype(result.dtype) if layer.bias else result

    def _convolution(self, layer: Conv2d, path: str, values: Any) -> Any:
        values, weight = self._narrow_all(values, self._weight(path, "weight"))
        padding = ((layer.padding, layer.padding),) * 2
        result = lax.conv_general_dilated(
            values, weight, (layer.stride, layer.stride), padding, dimension_numbers=("NHWC", "HWIO", "NHWC"),
            precision=self.precision,
        )  # fmt: skip
        return result + self._weight(path, "bias").astype(result.dtype) if layer.bias else result

    def _batch_norm(self, layer: BatchNorm2d, path: str, values: Any) -> Any:
        kind, wide = values.dtype, _widen(values)
        if self.train:
            mean, variance = wide.mean(axis=(0, 1, 2)), wide.var(axis=(0, 1, 2))
            count = wide.size // layer.channels
            unbiased = variance * (count / (count - 1))
            for name, value in (("running_mean", mean), ("running_var", unbiased)):
                running = self._weight(path, name)
                updated = running + layer.momentum * (value.astype(running.dtype) - running)
                self.running[f"{path}.{name}"] = lax.stop_gradient(updated)
        else:
            mean, variance = _widen(self._weight(path, "running_mean")), _widen(self._weight(path, "running_var"))
        scale = _widen(self._weight(path, "weight")) * lax.rsqrt(variance + layer.epsilon)
        return ((wide - mean) * scale + _widen(self._weight(path, "bias"))).astype(kind)

    def _layer_norm(self, layer: LayerNorm, path: str, values: Any) -> Any:
        kind, wide = values.dtype, _widen(values)
        mean, variance = wide.mean(axis=-1, keepdims=True), wide.var(axis=-1, keepdims=True)
        normed = (wide - mean) * lax.rsqrt(variance + layer.epsilon)
        return (normed * _widen(self._weight(path, "weight")) + _widen(self._weight(path, "bias"))).astype(kind)

    # ---- the transformer ------------------------------------------------------------------------------------

    def gpt(self, layer: Gpt, tokens: Any, cache: Cache | None = None, first: Any = 0) -> tuple[Any, Cache]:
        """Scores of every next token, and the new cache; with a cache, only scores of the token after the last.

        `first`: the position of the first token.
        """
        with jax.named_scope("tokens"):
            features = self.weights["tokens.weight"][tokens]
        with jax.named_scope("positions"):
            positions = self.weights["positions.weight"][first + jnp.arange(tokens.shape[1])]
        features = features + positions
        caches = []
        for number, (name, block) in enumerate(layer.blocks.children()):
            assert isinstance(block, Block)
            old_cache = cache[number] if cache is not None else None
            features, new_cache = self._block(block, f"blocks.{name}", features, old_cache, first)
            caches.append(new_cache)
        if cache is not None:
            features = features[:, -1:]
        return self(layer.head, "head", self(layer.norm, "norm", features)), tuple(caches)

    def _block(self, layer: Block, path: str, tokens: Any, cache: Any, first: Any) -> tuple[Any, Any]:
        with jax.named_scope(path):
            normed = self(layer.before_attention, f"{path}.before_attention", tokens)
            attended, new_cache = self._attention(layer.attention, f"{path}.attention", normed, cache, first)
            tokens = tokens + attended
            normed = self(layer.before_perceptron, f"{path}.before_perceptron", tokens)
            return tokens + self(layer.perceptron, f"{path}.perceptron", normed), new_cache

    def _attention(self, layer: Attention, path: str, tokens: Any, cache: Any, first: Any) -> tuple[Any, Any]:
        """Attention and the new cache. Shapes are fixed: a mask leaves out scores of positions still to come."""
        with jax.named_scope(path):
            batch, length, width = tokens.shape
            shape = (batch, length, 3, layer.heads, width // layer.heads)
            split = self(layer.project, f"{path}.project", tokens).reshape(shape).transpose(2, 0, 3, 1, 4)
            queries, keys, values = split
            if cache is not None:
                # Indices of one type, whatever type JAX gives to Python's numbers.
                start = tuple(jnp.asarray(index, jnp.int32) for index in (0, 0, first, 0))
                keys, values = (
                    lax.dynamic_update_slice(before, new.astype(before.dtype), start)
                    for before, new in zip(cache, (keys, values), strict=True)
                )
            new_cache = (keys, values)
            queries, keys, values = self._narrow_all(queries, keys, values)
            scores = jnp.einsum("bhqd,bhkd->bhqk", queries, keys, precision=self.precision)
            scores = _widen(scores) / np.sqrt(width // layer.heads)
            visible = jnp.arange(keys.shape[2])[None, :] <= first + jnp.arange(length)[:, None]
            shares = jax.nn.softmax(jnp.where(visible, scores, -jnp.inf), axis=-1).astype(values.dtype)
            attended = jnp.einsum("bhqk,bhkd->bhqd", shares, values, precision=self.precision)
            joined = attended.transpose(0, 2, 1, 3).reshape(batch, length, width)
            return self(layer.output, f"{path}.output", joined), new_cache


def _max_pool(layer: MaxPool2d, values: Any) -> Any:
    sides = ((0, 0), (layer.padding, layer.padding), (layer.padding, layer.padding), (0, 0))
    window, steps = (1, layer.kernel, layer.kernel, 1), (1, layer.stride, layer.stride, 1)
    return lax.reduce_window(values, -jnp.inf, lax.max, window, steps, sides)


def _widen(values: Any) -> Any:
    """The values in float32 at least, for sums of many values."""
    return values.astype(jnp.float32) if values.dtype in (jnp.bfloat16, jnp.float16) else values


def cross_entropy(scores: Any, classes: Any) -> Any:
    """The mean cross entropy over all rows (and positions)."""
    chances = jax.nn.log_softmax(_widen(scores), axis=-1)
    return -jnp.take_along_axis(chances, classes[..., None], axis=-1).mean()


def mean_squared_error(shares: Any, targets: Any) -> Any:
    return jnp.square(_widen(shares) - targets).mean()
