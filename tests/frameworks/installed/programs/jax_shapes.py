"""Trains, validates and tests with batches of several sizes; two of its functions have no name."""

import jax
import jax.numpy as jnp

ROWS, LAST, MORE, WIDTH = 64, 40, 512, 96
weights = jnp.ones((WIDTH, WIDTH)) * 0.01
augment = jax.jit(lambda x: x * 1.01)
step = jax.jit(lambda w, x: w - 0.1 * jax.grad(lambda w: jnp.square(x @ w).mean())(w))


@jax.jit
def score(w, x):
    return jnp.square(x @ w).mean()


whole, rest, many = (jnp.ones((rows, WIDTH)) for rows in (ROWS, LAST, MORE))
for _ in range(2):
    for x in (*[whole] * 20, rest):
        weights = step(weights, augment(x))
    for _ in range(12):
        score(weights, whole)
for _ in range(30):
    score(weights, many)
