"""A jitted training step in plain JAX."""

import jax
import jax.numpy as jnp


def loss(weights, x, y):
    hidden = jax.nn.relu(x @ weights["first"])
    return jnp.mean((hidden @ weights["second"] - y) ** 2)


@jax.jit
def step(weights, x, y):
    slope = jax.grad(loss)(weights, x, y)
    return jax.tree.map(lambda weight, change: weight - 0.01 * change, weights, slope)


key = jax.random.key(0)
weights = {"first": jax.random.normal(key, (64, 128)), "second": jax.random.normal(key, (128, 1))}
x, y = jax.random.normal(key, (256, 64)), jnp.ones((256, 1))
for _ in range(40):
    weights = jax.block_until_ready(step(weights, x, y))
