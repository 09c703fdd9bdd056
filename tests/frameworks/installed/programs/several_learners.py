"""Two functions learn, in turns within a step or one after the other, of models that differ or are alike; or one does,
with shapes that change."""

import sys

import numpy as np
import tensorflow as tf

mode = sys.argv[1]


def learner(size):
    weight = tf.Variable(tf.ones((size, size)) * 0.01)

    @tf.function
    def learn(rows):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(rows @ weight)
        weight.assign_sub(1e-6 * tape.gradient(loss, weight))
        return loss

    return learn


def network(name):
    """8 to 16 to 8; layers of both networks have the same names."""
    layers = [tf.keras.layers.Dense(16, name="hidden"), tf.keras.layers.Dense(8, name="last")]
    return tf.keras.Sequential([tf.keras.Input((8,)), *layers], name=name), tf.keras.optimizers.SGD(1e-6)


def adversaries():
    """A critic learns what is drawn and what is real, then a generator from its critic: two functions in every step."""
    (generator, moves), (critic, answers) = network("generator"), network("critic")

    @tf.function
    def judge(real, noise):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(critic(real)) - tf.reduce_sum(critic(generator(noise)))
        answers.apply(tape.gradient(loss, critic.trainable_variables), critic.trainable_variables)
        return loss

    @tf.function
    def draw(noise):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(critic(generator(noise)))
        moves.apply(tape.gradient(loss, generator.trainable_variables), generator.trainable_variables)
        return loss

    return judge, draw


def fitted(width):
    layers = [tf.keras.Input((12,)), tf.keras.layers.Dense(width), tf.keras.layers.Dense(1)]
    model = tf.keras.Sequential(layers)
    model.compile("sgd", "mse", jit_compile=False)
    model.fit(np.ones((24 * 4, 12), "float32"), np.ones((24 * 4, 1), "float32"), batch_size=4, verbose=0)


if mode == "turns":
    small, large = learner(8), learner(32)
    for _ in range(16):
        small(tf.ones((4, 8)))
        large(tf.ones((4, 32)))
elif mode == "adversaries":
    judge, draw = adversaries()
    for _ in range(20):
        judge(tf.ones((4, 8)), tf.ones((4, 8)))
        draw(tf.ones((4, 8)))
elif mode in ("last", "lengths"):
    learn = learner(8)
    for number in range(24):
        # A smaller last batch; or every batch as long as its longest text.
        learn(tf.ones((1 if number % 6 == 5 else 4, 8)) if mode == "last" else tf.ones((4 + number % 3, 8)))
elif mode == "five":
    for each in [learner(8) for _ in range(5)]:
        for _ in range(12):
            each(tf.ones((4, 8)))
else:
    for width in (8, 64) if mode == "models" else (8, 8):
        fitted(width)
