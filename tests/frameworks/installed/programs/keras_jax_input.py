"""Trains a small model of Keras on JAX with a data set that sleeps; with so many workers as the argument says."""

import sys
import time

import keras
import numpy as np

BATCHES, BATCH, SLEEP = 16, 4, 0.08
assert keras.backend.backend() == "jax"
keras.utils.set_random_seed(7)
x = np.random.default_rng(7).standard_normal((BATCHES * BATCH, 12)).astype("float32")
y = np.arange(BATCHES * BATCH) % 3


class Slow(keras.utils.PyDataset):
    def __len__(self):
        return BATCHES

    def __getitem__(self, batch):
        time.sleep(SLEEP)
        return x[BATCH * batch :][:BATCH], y[BATCH * batch :][:BATCH]


model = keras.Sequential([keras.layers.Dense(16, activation="relu"), keras.layers.Dense(3)])
model.compile(keras.optimizers.SGD(0.01), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
model.fit(Slow(workers=int(sys.argv[1])), epochs=2, verbose=0, shuffle=False)
