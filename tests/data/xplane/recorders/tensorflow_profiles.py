"""Record small profiles with TensorFlow and Keras into the directory `profiles` of the current one."""

import keras
import numpy as np
import tensorflow as tf

tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)
draw = np.random.default_rng(0)
images, labels = draw.normal(size=(256, 16, 16, 3)).astype("float32"), draw.integers(0, 10, 256)
loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def network(**how):
    layers = [keras.Input((16, 16, 3)), keras.layers.Conv2D(8, 3, activation="relu"), keras.layers.Flatten()]
    model = keras.Sequential([*layers, keras.layers.Dense(10)])
    model.compile("adam", loss_of, metrics=["accuracy"], **how)
    return model


def record(name, work):
    tf.profiler.experimental.start(f"profiles/{name}")
    work()
    tf.profiler.experimental.stop()


class Marks(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        self.mark = tf.profiler.experimental.Trace("train", step_num=batch, _r=1)
        self.mark.__enter__()

    def on_train_batch_end(self, batch, logs=None):
        self.mark.__exit__(None, None, None)


def fit(model, **how):
    model.fit(images, labels, batch_size=32, epochs=1, verbose=0, **how)


model = network()
record("keras_cold", lambda: fit(model))
record("keras_fit", lambda: fit(model))
record("keras_marked", lambda: fit(model, callbacks=[Marks()]))
record("keras_validated", lambda: model.fit(images, labels, batch_size=32, epochs=2, verbose=0,
                                            validation_data=(images[:96], labels[:96])))  # fmt: skip
compiled = network(jit_compile=True)
fit(compiled)
record("keras_xla", lambda: fit(compiled))

optimizer = keras.optimizers.SGD(0.1)
optimizer.build(model.trainable_variables)
batches = tf.data.Dataset.from_tensor_slices((images, labels)).batch(32)


def train(image, label):
    with tf.GradientTape() as tape:
        loss = loss_of(label, model(image, training=True))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))


graph = tf.function(train)
for image, label in batches.take(2):
    graph(image, label)


def marked():
    supply = iter(batches)
    for number in range(8):
        with tf.profiler.experimental.Trace("train", step_num=number, _r=1):
            graph(*next(supply))


record("loop_marked", marked)
record("loop_plain", lambda: [graph(*batch) for batch in batches])
record("loop_eager", lambda: [train(*batch) for batch in batches.take(4)])
