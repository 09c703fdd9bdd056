"""Four steps of a jitted training step as an xplane file: `python jaxrec.py DIRECTORY`."""

import sys

import jax
import jax.numpy as jnp


@jax.jit
def step(w, x):
    def loss(w):
        return jnp.mean(jnp.tanh(x @ w) ** 2)

    value, gradient = jax.value_and_grad(loss)(w)
    return w - 0.1 * gradient, value


w = jnp.ones((1024, 1024))
x = jnp.ones((512, 1024))
w, value = step(w, x)
value.block_until_ready()
jax.profiler.start_trace(sys.argv[1])
for number in range(4):
    with jax.profiler.StepTraceAnnotation("train", step_num=number):
        w, value = step(w, x)
        value.block_until_ready()
jax.profiler.stop_trace()
