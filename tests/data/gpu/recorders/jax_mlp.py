"""A perceptron of three layers, the last of them in a scope of its own; trained by gradient descent."""

import jax
import jax.numpy as jnp
import numpy as np

key = jax.random.key(0)


def dense(w, b, x):
    return x @ w + b


def predict(params, x):
    for w, b in params[:-1]:
        x = jnp.tanh(dense(w, b, x))
    with jax.named_scope("head"):
        w, b = params[-1]
        return dense(w, b, x)


def loss_of(params, x, y):
    logits = predict(params, x)
    return -jnp.mean(jnp.sum(jax.nn.log_softmax(logits) * y, axis=-1))


@jax.jit
def step(params, x, y):
    value, gradient = jax.value_and_grad(loss_of)(params, x, y)
    return jax.tree.map(lambda p, d: p - 0.1 * d, params, gradient), value


sizes = [2048, 4096, 4096, 1000]
params = [
    (jax.random.normal(k, (a, b)) * 0.02, jnp.zeros(b))
    for k, a, b in zip(jax.random.split(key, 3), sizes, sizes[1:], strict=False)
]
rng = np.random.default_rng(0)
for _ in range(60):
    x = rng.standard_normal((512, 2048), dtype=np.float32)
    y = np.eye(1000, dtype=np.float32)[rng.integers(0, 1000, 512)]
    params, value = step(params, x, y)
print(float(value))
