"""Layers of the built-in networks in TensorFlow: from a structure to a function of weights and inputs.

Images have their channels last, as programs in TensorFlow do: most of its kernels for processors know no other layout.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from sonda.workloads.networks.layers import (
    AdaptiveAvgPool2d,
    BatchNorm2d,
    Conv2d,
    Flatten,
    Layer,
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

Variables = Mapping[str, Any]
"""Weights by the names of PyTorch's `state_dict`; kernels of convolutions as height x width x input x output."""
SIMPLE = {ReLU: tf.nn.relu, Sigmoid: tf.sigmoid, Tanh: tf.tanh, Softmax: tf.nn.softmax}


class TensorflowLayers:
    """Applies layers to their inputs. `narrow` is the type of products where it is not that of the weights."""

    def __init__(self, weights: Variables, train: bool, narrow: Any = None, compiled: bool = False) -> None:
        """`compiled`: whether XLA compiles it, which cannot pad a pooling."""
        self.weights = weights
        self.train = train
        self.narrow = narrow
        self.compiled = compiled

    def apply(self, layer: Layer, path: str, values: Any) -> Any:
        """The output of a layer and of those that it holds, in name scopes of their paths."""
        if isinstance(layer, Sequential):
            for name, child in layer.children():
                values = self.apply(child, join_path(path, name), values)
            return values
        if isinstance(layer, Residual):
            total = self.apply(layer.body, f"{path}.body", values)
            total = total + self.apply(layer.shortcut, f"{path}.shortcut", values)
            return self.apply(layer.activation, f"{path}.activation", total)
        with tf.name_scope(path):
            return self.apply_layer(layer, path, values)

    def apply_layer(self, layer: Layer, path: str, values: Any) -> Any:
        """The output of a layer that holds no others."""
        if isinstance(layer, Linear):
            values, weight = self._narrow_all(values, self.weights[f"{path}.weight"])
            result = tf.matmul(values, weight, transpose_b=True)
            return self._add_bias(layer, path, result)
        if isinstance(layer, Conv2d):
            values, weight = self._narrow_all(values, self.weights[f"{path}.weight"])
            result = tf.nn.conv2d(values, weight, layer.stride, _pad_sides(layer.padding))
            return self._add_bias(layer, path, result)
        if isinstance(layer, BatchNorm2d):
            return self._batch_norm(layer, path, values)
        if isinstance(layer, MaxPool2d):
            return self._max_pool(layer, values)
        if isinstance(layer, AdaptiveAvgPool2d):
            return tf.reduce_mean(values, axis=(1, 2), keepdims=True)
        if isinstance(layer, Flatten):
            # The weights behind it are in PyTorch's order: channels first.
            return tf.reshape(tf.transpose(values, (0, 3, 1, 2)), (tf.shape(values)[0], -1))
        return SIMPLE[type(layer)](values)

    def _max_pool(self, layer: MaxPool2d, values: Any) -> Any:
        if not (self.compiled and layer.padding):
            return tf.nn.max_pool2d(values, layer.kernel, layer.stride, _pad_sides(layer.padding))
        padded = tf.pad(values, _pad_sides(layer.padding), constant_values=values.dtype.min)
        return tf.nn.max_pool2d(padded, layer.kernel, layer.stride, "VALID")

    def _narrow_all(self, *values: Any) -> tuple[Any, ...]:
        return values if self.narrow is None else tuple(tf.cast(value, self.narrow) for value in values)

    def _add_bias(self, layer: Linear | Conv2d, path: str, result: Any) -> Any:
        if not layer.bias:
            return result
        return tf.nn.bias_add(result, tf.cast(self.weights[f"{path}.bias"], result.dtype))

    def _batch_norm(self, layer: BatchNorm2d, path: str, values: Any) -> Any:
        """TensorFlow's fused kernel, which gives the unbiased variance of a batch and does not take float64."""
        scale, shift, mean, variance = (
            self.weights[f"{path}.{name}"] for name in ("weight", "bias", "running_mean", "running_var")
        )
        if values.dtype == tf.float64:
            return self._batch_norm_float64(layer, values, scale, shift, mean, variance)
        wide = [tf.cast(value, tf.float32) for value in (scale, shift, mean, variance)]
        if not self.train:
            return tf.compat.v1.nn.fused_batch_norm(values, *wide, epsilon=layer.epsilon, is_training=False)[0]
        normed, *batch = tf.compat.v1.nn.fused_batch_norm(values, *wide[:2], epsilon=layer.epsilon, is_training=True)
        for running, new in zip((mean, variance), batch, strict=True):
            running.assign_add(layer.momentum * (tf.cast(new, running.dtype) - running))
        return normed

    def _batch_norm_float64(
        self, layer: BatchNorm2d, values: Any, scale: Any, shift: Any, mean: Any, variance: Any
    ) -> Any:
        if not self.train:
            return tf.nn.batch_normalization(values, mean, variance, shift, scale, layer.epsilon)
        batch_mean, batch_variance = tf.nn.moments(values, (0, 1, 2))
        count = tf.cast(tf.size(values) // layer.channels, values.dtype)
        mean.assign_add(layer.momentum * (batch_mean - mean))
        variance.assign_add(layer.momentum * (batch_variance * count / (count - 1) - variance))
        return tf.nn.batch_normalization(values, batch_mean, batch_variance, shift, scale, layer.epsilon)


def _pad_sides(padding: int) -> Any:
    return [[0, 0], [padding, padding], [padding, padding], [0, 0]] if padding else "VALID"


def cross_entropy(scores: Any, classes: Any) -> Any:
    """The mean cross entropy over all rows, in float32 at least."""
    wide = scores if scores.dtype == tf.float64 else tf.cast(scores, tf.float32)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(classes, wide))


def mean_squared_error(shares: Any, targets: Any) -> Any:
    wide = shares if shares.dtype == tf.float64 else tf.cast(shares, tf.float32)
    return tf.reduce_mean(tf.square(wide - tf.cast(targets, wide.dtype)))
