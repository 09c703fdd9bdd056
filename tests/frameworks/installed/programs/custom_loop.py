"""Trains with a loop of its own: tape and optimizer, in a graph or without one."""

import hashlib
import sys

import numpy as np
import tensorflow as tf

mode = sys.argv[1] if len(sys.argv) > 1 else "graph"
tf.keras.utils.set_random_seed(3)
random = np.random.default_rng(3)
x = random.standard_normal((60, 10)).astype("float32")
y = random.integers(0, 2, 60)
batches = tf.data.Dataset.from_tensor_slices((x, y)).batch(10)


class Net(tf.keras.Model):
    """Its layers carry the same name."""

    def __init__(self):
        super().__init__()
        self.first = tf.keras.layers.Dense(8, activation="relu", name="same")
        self.second = tf.keras.layers.Dense(2, name="same")

    def call(self, images, training=False):
        return self.second(self.first(images))


model = Net()
loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
optimizer = tf.keras.optimizers.SGD(0.1)


def step(images, labels):
    with tf.GradientTape() as tape:
        loss = loss_of(labels, model(images, training=True))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    return loss


def manual(images, labels):
    with tf.GradientTape() as tape:
        loss = loss_of(labels, model(images, training=True))
    weights = model.trainable_variables
    for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
        weight.assign_sub(0.1 * gradient)
    return loss


@tf.function
def shifted(images):
    return images + 0.5


if mode == "graph":
    learn = tf.function(step)

    def step(images, labels):
        return learn(shifted(images), labels)

elif mode == "manual":
    step = manual
for _ in range(3):
    for images, labels in batches:
        loss = step(images, labels)
for images, _ in batches.take(2):
    model(images, training=False)
weights = hashlib.sha256(b"".join(one.numpy().tobytes() for one in model.trainable_variables)).hexdigest()
print(weights, float(loss))
sys.exit(5)
