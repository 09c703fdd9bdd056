"""Trains a small model with Keras, validates, evaluates and predicts; prints what came out, to the bit."""

import hashlib
import sys

import keras
import numpy as np

mode = sys.argv[1] if len(sys.argv) > 1 else "graph"
keras.utils.set_random_seed(7)
random = np.random.default_rng(7)
x = random.standard_normal((64, 12)).astype("float32")
y = random.integers(0, 3, 64)
model = keras.Sequential(
    [
        keras.layers.Dense(16, activation="relu", name="hidden"),
        keras.layers.Dropout(0.25),
        keras.layers.Dense(3, name="output"),
    ]
)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
compiled = mode == "xla" or (mode != "eager" and keras.backend.backend() == "jax")  # without, JAX has no graph
how = {"run_eagerly": mode == "eager", "jit_compile": compiled}
model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"], **how)
batch = 10 if mode == "xla" else 8  # 48 samples by 10 end with 8
history = model.fit(x[:48], y[:48], batch_size=batch, epochs=3, validation_data=(x[48:], y[48:]), verbose=0)
found = model.evaluate(x, y, batch_size=16, verbose=0)
answers = model.predict(x, batch_size=32, verbose=0)
weights = hashlib.sha256(b"".join(one.tobytes() for one in model.get_weights())).hexdigest()
print(weights, [float(value) for value in found], hashlib.sha256(answers.tobytes()).hexdigest())
print({name: [float(value) for value in values] for name, values in history.history.items()})
