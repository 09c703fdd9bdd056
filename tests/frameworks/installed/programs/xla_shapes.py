"""Functions that XLA compiles for each shape: one is traced for each as well, of the other the graph takes them all."""

import tensorflow as tf

weight = tf.Variable(tf.ones((4, 4)))


def body(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(x @ weight)
    weight.assign_sub(0.1 * tape.gradient(loss, weight))
    return loss


each = tf.function(body, jit_compile=True)
for rows in (1, 2, 3):
    each(tf.ones((rows, 4)))

general = tf.function(body, jit_compile=True, input_signature=[tf.TensorSpec((None, 4))])
for rows in (1, 2, 3, 3, 2, 3):
    general(tf.ones((rows, 4)))
