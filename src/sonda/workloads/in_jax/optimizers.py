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
    """weight - rate x gradient, without state."""

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def start(self, weights: Arrays) -> Any:
        """The state before the first step."""
        return ()

    def update(self, weights: Arrays, gradients: Arrays, state: Any) -> tuple[Arrays, Any]:
        """Weights and state after a step."""
        return jax.tree.map(lambda weight, gradient: weight - self.rate * gradient, weights, gradients), state


class AdamW:
    """Loshchilov and Hutter, Decoupled Weight Decay Regularization, with PyTorch's settings."""

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def start(self, weights: Arrays) -> Any:
        zeros = jax.tree.map(jnp.zeros_like, weights)
        return jnp.zeros((), jnp.int32), zeros, jax.tree.map(jnp.zeros_like, weights)

    def update(self, weights: Arrays, gradients: Arrays, state: Any) -> tuple[Arrays, Any]:
        step, first, second = state
        step = step + 1
        corrections = 1 - jnp.power(BETAS[0], step), 1 - jnp.power(BETAS[1], step)
        first = jax.tree.map(lambda old, gradient: old + (1 - BETAS[0]) * (gradient - old), first, gradients)
        second = jax.tree.map(
            lambda old, gradient: BETAS[1] * old + (1 - BETAS[1]) * gradient * gradient, second, gradients
        )

        def update_weight(weight: Any, mean: Any, square: Any) -> Any:
            weight = weight * (1 - self.rate * DECAY)
            return weight - self.rate / corrections[0] * mean / (jnp.sqrt(square) / jnp.sqrt(corrections[1]) + EPSILON)

        return jax.tree.map(update_weight, weights, first, second), (step, first, second)
