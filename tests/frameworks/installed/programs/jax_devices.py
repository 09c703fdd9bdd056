"""Trains a perceptron without named scopes on two devices: batches are shared among them, or `pmap` has one each."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

devices = np.array(jax.devices())


def dense(weights, x):
    return x @ weights


def loss_of(weights, x):
    hidden = jnp.tanh(dense(weights[0], x))
    return jnp.square(dense(weights[1], hidden)).mean()


weights = [jnp.full((32, 64), 0.01), jnp.full((64, 8), 0.01)]
x = jnp.ones((48, 32))
if sys.argv[1] == "pmap":

    @jax.named_scope("network")
    def shared(weights, x):
        return loss_of(weights, x)

    def step(weights, x):
        slopes = jax.lax.pmean(jax.grad(shared)(weights, x), "devices")
        return [weight - 0.1 * slope for weight, slope in zip(weights, slopes, strict=True)]

    step = jax.pmap(step, axis_name="devices")
    weights, x = [jnp.stack([weight] * 2) for weight in weights], x.reshape(2, 24, 32)
else:
    mesh = Mesh(devices, ("devices",))
    x = jax.device_put(x, NamedSharding(mesh, PartitionSpec("devices")))
    weights = jax.device_put(weights, NamedSharding(mesh, PartitionSpec()))

    @jax.jit
    def step(weights, x):
        slopes = jax.grad(loss_of)(weights, x)
        return [weight - 0.1 * slope for weight, slope in zip(weights, slopes, strict=True)]


for _ in range(20):
    weights = step(weights, x)
print(float(jnp.abs(weights[0]).sum()))
