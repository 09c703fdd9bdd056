"""Record small profiles with JAX into the directory `profiles` of the current one."""

import jax
import jax.numpy as jnp
import numpy as np

draw = np.random.default_rng(0)
inputs, targets = draw.normal(size=(256, 64)).astype("float32"), draw.normal(size=(256, 1)).astype("float32")
weights = [jnp.array(draw.normal(size=shape), jnp.float32) for shape in ((64, 128), (128, 1))]
quiet = jax.profiler.ProfileOptions()
quiet.python_tracer_level = 0


@jax.jit
def step(weights, inputs, targets):
    def loss(weights):
        return jnp.mean((jnp.tanh(inputs @ weights[0]) @ weights[1] - targets) ** 2)

    return [weight - 0.1 * slope for weight, slope in zip(weights, jax.grad(loss)(weights), strict=False)]


def record(name, work, **how):
    jax.profiler.start_trace(f"profiles/{name}", **how)
    work()
    jax.profiler.stop_trace()


def marked():
    for number in range(6):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            jax.block_until_ready(step(weights, inputs, targets))


jax.block_until_ready(step(weights, inputs, targets))
record("jax_marked", marked)
record("jax_plain", lambda: [jax.block_until_ready(step(weights, inputs, targets)) for _ in range(6)])
record("jax_shapes", lambda: [jax.block_until_ready(step(weights, inputs[:length], targets[:length]))
                              for length in (100, 101, 102)], profiler_options=quiet)  # fmt: skip
