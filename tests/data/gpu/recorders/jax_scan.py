"""Six blocks of a transformer that `jax.lax.scan` runs through; trained with momentum."""

import jax
import jax.numpy as jnp


def block(x, p):
    with jax.named_scope("attention"):
        q, k, v = jnp.split(x @ p["qkv"], 3, axis=-1)
        a = jax.nn.softmax(q @ jnp.swapaxes(k, -1, -2) / 16.0, axis=-1)
        x = x + (a @ v) @ p["out"]
    with jax.named_scope("ffn"):
        x = x + jax.nn.gelu(x @ p["up"]) @ p["down"]
    return x, None


def loss(params, x, y):
    h, _ = jax.lax.scan(block, x, params)
    with jax.named_scope("loss"):
        return jnp.mean((h - y) ** 2)


@jax.jit
def train(params, m, x, y):
    value, gradient = jax.value_and_grad(loss)(params, x, y)
    m = jax.tree.map(lambda a, b: 0.9 * a + b, m, gradient)
    return jax.tree.map(lambda p, d: p - 1e-3 * d, params, m), m, value


d, n = 512, 6
k = jax.random.split(jax.random.key(1), 4)
params = {
    "qkv": jax.random.normal(k[0], (n, d, 3 * d)) * 0.02,
    "out": jax.random.normal(k[1], (n, d, d)) * 0.02,
    "up": jax.random.normal(k[2], (n, d, 4 * d)) * 0.02,
    "down": jax.random.normal(k[3], (n, 4 * d, d)) * 0.02,
}
m = jax.tree.map(jnp.zeros_like, params)
x = jax.random.normal(jax.random.key(2), (16, 256, d))
y = jnp.tanh(x)
for _ in range(40):
    params, m, value = train(params, m, x, y)
print(float(value))
