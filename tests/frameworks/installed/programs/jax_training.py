"""Trains a small network: one jitted step, or a jitted gradient and a jitted update, or a gradient without jit."""

import hashlib
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

mode = sys.argv[1] if len(sys.argv) > 1 else "fused"
random = np.random.default_rng(3)
images = random.standard_normal((60, 20)).astype("float32")
classes = random.integers(0, 4, 60)
weights = {
    "first": jnp.asarray(random.standard_normal((20, 16)).astype("float32")),
    "second": jnp.asarray(random.standard_normal((16, 4)).astype("float32")),
}


def loss_of(weights, x, y):
    scores = jnp.tanh(x @ weights["first"]) @ weights["second"]
    return -jnp.take_along_axis(jax.nn.log_softmax(scores), y[:, None], 1).mean()


@jax.jit
def augment(x):
    """A helper: given nothing that is learnt. It leaves the images as they are."""
    return jnp.flip(jnp.flip(x))


@jax.jit
def accuracy(weights, x, y):
    return ((jnp.tanh(x @ weights["first"]) @ weights["second"]).argmax(1) == y).mean()


@partial(jax.jit, donate_argnums=0)
def step(weights, x, y):
    loss, slopes = jax.value_and_grad(loss_of)(weights, x, y)
    return jax.tree.map(lambda weight, slope: weight - 0.1 * slope, weights, slopes), loss


@jax.jit
def slopes_of(weights, x, y):
    return jax.value_and_grad(loss_of)(weights, x, y)


@jax.jit
def update(weights, slopes):
    return jax.tree.map(lambda weight, slope: weight - 0.1 * slope, weights, slopes)


class Model:
    @partial(jax.jit, static_argnums=0)
    def scores(self, weights, x):
        return x @ weights["first"]


for _ in range(2):
    for begin in range(0, 60, 10):
        batch = augment(images[begin : begin + 10]), classes[begin : begin + 10]
        if mode == "fused":
            weights, loss = step(weights, *batch)
        elif mode == "apart":
            loss, slopes = slopes_of(weights, *batch)
            weights = update(weights, slopes)
        else:
            loss, slopes = jax.value_and_grad(loss_of)(weights, *batch)
            weights = jax.tree.map(lambda weight, slope: weight - 0.1 * slope, weights, slopes)
    for begin in (0, 30):
        right = accuracy(weights, images[begin : begin + 30], classes[begin : begin + 30])

assert step.lower(weights, *batch).compile() is not None
assert step.__name__ == "step" and callable(accuracy.clear_cache)
assert Model().scores(weights, images[:2]).shape == (2, 16)
assert jax.jit(accuracy)(weights, images[:30], classes[:30]).shape == ()
assert jax.vmap(accuracy, in_axes=(None, 0, 0))(weights, images[:, None], classes[:, None]).shape == (60,)
print(mode, float(loss), float(right), hashlib.sha256(np.asarray(weights["first"]).tobytes()).hexdigest())
