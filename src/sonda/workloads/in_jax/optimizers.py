"""The optimizers of the built-in networks in JAX, as PyTorch computes them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from sonda.workloads.in_jax.layers import Arrays

BETAS = (0.9, 0.999)
EPSILON = 1e-8
DECAY = 0.01


class Sgd:
    """weight - rate x gradient. Keeps nothing."""

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def start(self, weights: Arrays) -> Any:
        """What is kept from step to step, at the beginning."""
        return ()

    def update(self, weights: Arrays, gradients: Arrays, kept: Any) -> tuple[Arrays, Any]:
        """Weights after a step, and what is kept then."""
        return jax.tree.map(lambda weight, slope: weight - self.rate * slope, weights, gradients), kept


class AdamW:
    """Loshchilov and Hutter, Decoupled Weight Decay Regularization, with PyTorch's settings."""

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def start(self, weights: Arrays) -> Any:
        zeros = jax.tree.map(jnp.zeros_like, weights)
        return jnp.zeros((), jnp.int32), zeros, jax.tree.map(jnp.zeros_like, weights)

    def update(self, weights: Arrays, gradients: Arrays, kept: Any) -> tuple[Arrays, Any]:
        step, first, second = kept
        step = step + 1
        towards = 1 - jnp.power(BETAS[0], step), 1 - jnp.power(BETAS[1], step)
        first = jax.tree.map(lambda old, slope: old + (1 - BETAS[0]) * (slope - old), first, gradients)
        second = jax.tree.map(lambda old, slope: BETAS[1] * old + (1 - BETAS[1]) * slope * slope, second, gradients)

        def moved(weight: Any, one: Any, two: Any) -> Any:
            weight = weight * (1 - self.rate * DECAY)
            return weight - self.rate / towards[0] * one / (jnp.sqrt(two) / jnp.sqrt(towards[1]) + EPSILON)

        return jax.tree.map(moved, weights, first, second), (step, first, second)
