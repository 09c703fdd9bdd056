"""Functions that are traced again and again, each for another reason."""

import tensorflow as tf

weight = tf.Variable(tf.ones((4, 4)))


@tf.function
def by_shape(x):
    return tf.reduce_sum(x @ weight)


@tf.function
def by_value(x, power):
    return tf.reduce_sum(x @ weight) * power


@tf.function
def steady(x):
    return tf.reduce_sum(x @ weight)


for number in range(6):
    by_shape(tf.ones((number + 1, 4)))
    by_value(tf.ones((2, 4)), number)
    steady(tf.ones((2, 4)))

    @tf.function
    def anew(x):
        return tf.reduce_sum(x @ weight)

    anew(tf.ones((2, 4)))


@tf.function
def made_before(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(x @ weight)
    weight.assign_sub(0.1 * tape.gradient(loss, weight))


made_before.get_concrete_function(tf.TensorSpec((2, 4)))
for _ in range(3):
    made_before(tf.ones((2, 4)))
