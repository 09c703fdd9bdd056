"""Trains a small model whose input is slow, in one of several ways; prints what came out, to the bit."""

import hashlib
import sys
import time

import keras
import numpy as np
import tensorflow as tf

mode = sys.argv[1]
BATCHES, BATCH, SLEEP = 20, 4, 0.01
keras.utils.set_random_seed(7)
random = np.random.default_rng(7)
x = random.standard_normal((BATCHES * BATCH, 12)).astype("float32")
y = random.integers(0, 3, BATCHES * BATCH)


class Slow(keras.utils.PyDataset):
    def __len__(self):
        return BATCHES

    def __getitem__(self, batch):
        time.sleep(BATCH * SLEEP)
        return x[BATCH * batch :][:BATCH], y[BATCH * batch :][:BATCH]


def slow(number):
    def fetch(number):
        time.sleep(SLEEP)
        return x[number], y[number]

    sample, label = tf.numpy_function(fetch, [number], [tf.float32, tf.int64])
    return tf.ensure_shape(sample, [12]), tf.ensure_shape(label, [])


def mapped():
    return tf.data.Dataset.range(len(x)).map(slow).batch(BATCH)


model = keras.Sequential([keras.layers.Dense(16, activation="relu"), keras.layers.Dropout(0.25), keras.layers.Dense(3)])
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras.optimizers.SGD(0.01), loss, steps_per_execution=4 if mode == "executions" else 1)


@tf.function
def step(iterator):
    samples, labels = next(iterator)
    with tf.GradientTape() as tape:
        value = loss(labels, model(samples, training=True))
    model.optimizer.apply(tape.gradient(value, model.trainable_variables), model.trainable_variables)


if mode == "workers":
    model.fit(Slow(workers=2), epochs=2, verbose=0, shuffle=False)
elif mode == "dataset":
    model.fit(Slow(), epochs=2, verbose=0, shuffle=False)
elif mode == "validation":
    model.fit(x, y, batch_size=BATCH, epochs=2, verbose=0, validation_data=mapped())
elif mode == "iterator":
    model.build((None, 12))
    model.optimizer.build(model.trainable_variables)
    for _ in range(2):
        iterator = iter(mapped())
        for _ in range(BATCHES):
            step(iterator)
else:
    model.fit(mapped(), epochs=2, verbose=0)
print(hashlib.sha256(b"".join(one.tobytes() for one in model.get_weights())).hexdigest())
