"""Trains a small transformer whose blocks are scanned, with named scopes and donated weights; then evaluates it."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

BLOCKS, WIDTH, HEADS, WORDS, LENGTH, BATCH = 3, 32, 4, 50, 16, 4
random = np.random.default_rng(0)


def drawn(*shape):
    return jnp.asarray(random.standard_normal(shape).astype("float32") * 0.05)


weights = {
    "words": drawn(WORDS, WIDTH),
    "blocks": {
        "split": drawn(BLOCKS, WIDTH, 3 * WIDTH),
        "join": drawn(BLOCKS, WIDTH, WIDTH),
        "up": drawn(BLOCKS, WIDTH, 4 * WIDTH),
        "down": drawn(BLOCKS, 4 * WIDTH, WIDTH),
    },
    "head": drawn(WIDTH, WORDS),
}


def block(x, own):
    with jax.named_scope("attention"):
        queries, keys, values = (
            part.reshape(BATCH, LENGTH, HEADS, WIDTH // HEADS) for part in jnp.split(x @ own["split"], 3, -1)
        )
        scores = jnp.einsum("bqhd,bkhd->bhqk", queries, keys)
        scores = jnp.where(jnp.tril(jnp.ones((LENGTH, LENGTH), bool)), scores, -jnp.inf)
        looked = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), values)
        x = x + looked.reshape(BATCH, LENGTH, WIDTH) @ own["join"]
    with jax.named_scope("perceptron"):
        return x + jax.nn.relu(x @ own["up"]) @ own["down"], None


def scores_of(weights, tokens):
    with jax.named_scope("embed"):
        x = weights["words"][tokens]
    with jax.named_scope("blocks"):
        x, _ = jax.lax.scan(block, x, weights["blocks"])
    with jax.named_scope("head"):
        return x @ weights["head"]


def loss_of(weights, tokens, following):
    scores = scores_of(weights, tokens)
    with jax.named_scope("loss"):
        return -jnp.take_along_axis(jax.nn.log_softmax(scores), following[..., None], -1).mean()


@partial(jax.jit, donate_argnums=0)
def step(weights, tokens, following):
    loss, slopes = jax.value_and_grad(loss_of)(weights, tokens, following)
    return jax.tree.map(lambda weight, slope: weight - 0.1 * slope, weights, slopes), loss


@jax.jit
def right(weights, tokens, following):
    return (scores_of(weights, tokens).argmax(-1) == following).mean()


tokens, following = (jnp.asarray(random.integers(0, WORDS, (BATCH, LENGTH))) for _ in range(2))
for _ in range(20):
    weights, loss = step(weights, tokens, following)
for _ in range(18):
    share = right(weights, tokens, following)
print(float(loss), float(share))
