"""Keras's own loop, on TensorFlow."""

import keras
import numpy as np

keras.utils.set_random_seed(0)
model = keras.Sequential([keras.layers.Dense(64, activation="relu"), keras.layers.Dense(10, activation="softmax")])
model.compile("adam", "sparse_categorical_crossentropy")
images, labels = np.random.default_rng(0).random((960, 32), np.float32), np.arange(960) % 10
model.fit(images, labels, batch_size=32, epochs=2, validation_data=(images[:128], labels[:128]), verbose=0)
