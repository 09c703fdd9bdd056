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


class Model:
    def __repr__(self):
        raise RuntimeError("a model is not written")

    def scores(self, x, scale):
        return (x * scale).sum()


@partial(jax.jit, static_argnums=-1)
def scaled(*values):
    return values[0] * values[-1]


by_method = jax.jit(Model().scores, static_argnums=1)
scaled(jnp.ones(2), 3)
jax.jit(Model.scores, static_argnums=0)(Model(), jnp.ones(2), 3.0)
for number in range(6):
    by_method(jnp.ones((2, 4)), number)
    by_shape(jnp.ones((number + 1, 4)))
    by_value(jnp.ones((2, 4)), number)
    steady(jnp.ones((2, 4)), float(number))
    jax.jit(lambda x: x.sum() + 1)(jnp.ones((2, 4)))
