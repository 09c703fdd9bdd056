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

Variables = Mapping[str, Any]
"""Weights by the names of PyTorch's `state_dict`; kernels of convolutions as height x width x input x output."""
SIMPLE = {ReLU: tf.nn.relu, Sigmoid: tf.sigmoid, Tanh: tf.tanh, Softmax: tf.nn.softmax}


class Layers:
    """What each layer makes of its input. `narrow` is the type of products where it is not that of the weights."""

    def __init__(self, weights: Variables, train: bool, narrow: Any = None, compiled: bool = False) -> None:
        """`compiled`: by XLA, which knows no padding of pools."""
        self.weights = weights
        self.train = train
        self.narrow = narrow
        self.compiled = compiled

    def network(self, node: Node, path: str, values: Any) -> Any:
        """What a node makes of its input, under scopes of the layers' paths."""
        if isinstance(node, Sequential):
            for name, child in node.children():
                values = self.network(child, join(path, name), values)
            return values
        if isinstance(node, Residual):
            through = self.network(node.body, f"{path}.body", values)
            through = through + self.network(node.shortcut, f"{path}.shortcut", values)
            return self.network(node.activation, f"{path}.activation", through)
        with tf.name_scope(path):
            return self.layer(node, path, values)

    def layer(self, node: Node, path: str, values: Any) -> Any:
        """What a layer that holds no others makes of its input."""
        if isinstance(node, Linear):
            values, weight = self._short(values, self.weights[f"{path}.weight"])
            result = tf.matmul(values, weight, transpose_b=True)
            return self._with_bias(node, path, result)
        if isinstance(node, Conv2d):
            values, weight = self._short(values, self.weights[f"{path}.weight"])
            result = tf.nn.conv2d(values, weight, node.stride, _sides(node.padding))
            return self._with_bias(node, path, result)
        if isinstance(node, BatchNorm2d):
            return self._batch_norm(node, path, values)
        if isinstance(node, MaxPool2d):
            return self._max_pool(node, values)
        if isinstance(node, AdaptiveAvgPool2d):
            return tf.reduce_mean(values, axis=(1, 2), keepdims=True)
        if isinstance(node, Flatten):
            # The weights behind it are in PyTorch's order: channels first.
            return tf.reshape(tf.transpose(values, (0, 3, 1, 2)), (tf.shape(values)[0], -1))
        return SIMPLE[type(node)](values)

    def _max_pool(self, node: MaxPool2d, values: Any) -> Any:
        if not (self.compiled and node.padding):
            return tf.nn.max_pool2d(values, node.kernel, node.stride, _sides(node.padding))
        padded = tf.pad(values, _sides(node.padding), constant_values=values.dtype.min)
        return tf.nn.max_pool2d(padded, node.kernel, node.stride, "VALID")

    def _short(self, *values: Any) -> tuple[Any, ...]:
        return values if self.narrow is None else tuple(tf.cast(value, self.narrow) for value in values)

    def _with_bias(self, node: Linear | Conv2d, path: str, result: Any) -> Any:
        if not node.bias:
            return result
        return tf.nn.bias_add(result, tf.cast(self.weights[f"{path}.bias"], result.dtype))

    def _batch_norm(self, node: BatchNorm2d, path: str, values: Any) -> Any:
        """TensorFlow's own kernel, whose variance of a batch is the unbiased one; float64 it does not know."""
        scale, shift, mean, variance = (
            self.weights[f"{path}.{name}"] for name in ("weight", "bias", "running_mean", "running_var")
        )
        if values.dtype == tf.float64:
            return self._wide_norm(node, values, scale, shift, mean, variance)
        wide = [tf.cast(one, tf.float32) for one in (scale, shift, mean, variance)]
        if not self.train:
            return tf.compat.v1.nn.fused_batch_norm(values, *wide, epsilon=node.epsilon, is_training=False)[0]
        normed, *batch = tf.compat.v1.nn.fused_batch_norm(values, *wide[:2], epsilon=node.epsilon, is_training=True)
        for running, new in zip((mean, variance), batch, strict=True):
            running.assign_add(node.momentum * (tf.cast(new, running.dtype) - running))
        return normed

    def _wide_norm(self, node: BatchNorm2d, values: Any, scale: Any, shift: Any, mean: Any, variance: Any) -> Any:
        if not self.train:
            return tf.nn.batch_normalization(values, mean, variance, shift, scale, node.epsilon)
        middle, spread = tf.nn.moments(values, (0, 1, 2))
        count = tf.cast(tf.size(values) // node.channels, values.dtype)
        mean.assign_add(node.momentum * (middle - mean))
        variance.assign_add(node.momentum * (spread * count / (count - 1) - variance))
        return tf.nn.batch_normalization(values, middle, spread, shift, scale, node.epsilon)


def _sides(padding: int) -> Any:
    return [[0, 0], [padding, padding], [padding, padding], [0, 0]] if padding else "VALID"


def cross_entropy(scores: Any, classes: Any) -> Any:
    """The mean over all rows, in float32 at least."""
    wide = scores if scores.dtype == tf.float64 else tf.cast(scores, tf.float32)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(classes, wide))


def mean_squared_error(shares: Any, targets: Any) -> Any:
    wide = shares if shares.dtype == tf.float64 else tf.cast(shares, tf.float32)
    return tf.reduce_mean(tf.square(wide - tf.cast(targets, wide.dtype)))
