"""The weights that a network begins with: the same in every framework, from numpy's generator.

Dense layers and convolutions, with their biases, are uniform within 1 / sqrt(inputs of one output), as in PyTorch's own
modules; convolutions of residual networks are normal with variance 2 / (outputs x kernel), after He et al.; weights of
GPT are normal with deviation 0.02, its biases 0.
"""

from __future__ import annotations

from math import prod, sqrt
from typing import Any

import numpy as np

from sonda.workloads.networks.layers import Conv2d, Embedding, Layer, Linear, Shape, join_path, walk_layers
from sonda.workloads.networks.network import Network

SMALL = 0.02
Weights = dict[str, np.ndarray]


def initial_weights(network: Network, seed: int) -> Weights:
    """Float32 arrays by the names of PyTorch's `state_dict`, in its order and layout, running statistics included.

    Each weight is there once: the dense layer of GPT that shares the embedding's has none.
    """
    generator = np.random.default_rng(seed)
    weights: Weights = {}
    for path, layer in walk_layers(network.structure()):
        for name, shape in {**layer.parameters(), **layer.buffers()}.items():
            weights[join_path(path, name)] = _initial_values(layer, name, shape, generator)
    return weights


def channels_last(values: np.ndarray) -> np.ndarray:
    """A weight of PyTorch's layout for images with channels last: kernels become height x width x input x output."""
    return np.ascontiguousarray(values.transpose(2, 3, 1, 0)) if values.ndim == 4 else values


def channels_first(values: np.ndarray) -> np.ndarray:
    """A weight in PyTorch's layout again: the inverse of `channels_last`."""
    return np.ascontiguousarray(values.transpose(3, 2, 0, 1)) if values.ndim == 4 else values


def _initial_values(layer: Layer, name: str, shape: Shape, generator: Any) -> np.ndarray:
    if isinstance(layer, Linear | Conv2d):
        return _product_weights(layer, name, shape, generator)
    if isinstance(layer, Embedding):
        return SMALL * _normal(shape, generator)
    # Normalisation: scales and running variances of 1, shifts and running means of 0.
    return np.full(shape, name in ("weight", "running_var"), dtype=np.float32)


def _product_weights(layer: Linear | Conv2d, name: str, shape: Shape, generator: Any) -> np.ndarray:
    weight = (layer.outputs, layer.inputs) if isinstance(layer, Linear) else layer.parameters()["weight"]
    if layer.initial == "uniform":
        bound = 1 / sqrt(prod(weight[1:]))
        return (2 * generator.random(shape, dtype=np.float32) - 1) * np.float32(bound)
    if name == "bias":
        return np.zeros(shape, dtype=np.float32)
    if layer.initial == "fan_out":
        return np.float32(sqrt(2 / (weight[0] * prod(weight[2:])))) * _normal(shape, generator)
    return np.float32(SMALL) * _normal(shape, generator)


def _normal(shape: Shape, generator: Any) -> np.ndarray:
    values: np.ndarray = generator.standard_normal(shape, dtype=np.float32)
    return values
