"""Functions that JAX compiles again and again, each for another reason."""

from functools import partial

import jax
import jax.numpy as jnp


@jax.jit
def by_shape(x):
    return (x * 2).sum()


@partial(jax.jit, static_argnames="power")
def by_value(x, power):
    return (x**power).sum()


@jax.jit
def steady(x, factor):
    return (x * factor).sum()


for number in range(6):
    by_shape(jnp.ones((number + 1, 4)))
    by_value(jnp.ones((2, 4)), number)
    steady(jnp.ones((2, 4)), float(number))
    jax.jit(lambda x: x.sum() + 1)(jnp.ones((2, 4)))
