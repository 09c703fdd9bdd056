"""Trains a perceptron, a gradient and an update apart, on what JAX is made to call a GPU; says the last loss.

A number: from so many steps on the program profiles itself.
"""

import sys
import tempfile
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np

jax.local_devices = lambda: [
    SimpleNamespace(
        id=0, local_hardware_id=0, platform="gpu", device_kind="Example", memory_stats=lambda: {"peak_bytes_in_use": 64}
    )
]
random = np.random.default_rng(3)
weights = [random.standard_normal((16, 16)).astype("float32") / 4 for _ in range(2)]
inputs = random.standard_normal((8, 16)).astype("float32")


def loss_of(weights, x):
    for weight in weights:
        x = jnp.tanh(x @ weight)
    return (x**2).mean()


slopes_of = jax.jit(jax.value_and_grad(loss_of))


@jax.jit
def update(weights, slopes):
    return [weight - 0.1 * slope for weight, slope in zip(weights, slopes, strict=True)]


for step in range(40):
    if sys.argv[1:] == [str(step)]:
        jax.profiler.start_trace(tempfile.mkdtemp())
    loss, slopes = slopes_of(weights, inputs)
    weights = update(weights, slopes)
print(float(loss).hex())
