"""The input pipeline of a training in TensorFlow: tf.data over the examples in memory, or over a stream of images."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import tensorflow as tf

from sonda.workloads.data.image_stream import ImageStream
from sonda.workloads.in_tensorflow.network import NetworkInTensorflow
from sonda.workloads.networks.examples import batch_numbers, images_channels_last


def make_batches(
    network: NetworkInTensorflow, seed: int, workers: int = 0, prefetch: int | None = None,
    stream: ImageStream | None = None, rows: slice | None = None,
) -> Iterator[tuple[Any, Any]]:  # fmt: skip
    """Endless batches of inputs and targets, in the order that all frameworks have.

    `workers` is the number of calls that tf.data makes in parallel (0: none). `prefetch` is the number of batches that
    it keeps ready (0: none; None: tf.data's default, which prepares one batch ahead). Python decodes the images, one
    call at a time. `rows` are the rows of every batch that this process makes; None: all.
    """
    rows = rows or slice(0, network.samples)
    if stream is not None:
        data = _examples_of_stream(network, stream, workers, rows)
    else:
        data = _examples_in_memory(network, seed, workers, rows)
    if prefetch:
        data = data.prefetch(prefetch)
    if prefetch is not None:
        data = data.with_options(_no_rewrites())
    iterator: Iterator[tuple[Any, Any]] = iter(data)
    return iterator


def _no_rewrites() -> Any:
    """Options of tf.data that keep it from loading ahead where the pipeline does not say so."""
    options = tf.data.Options()
    rewrites = options.experimental_optimization
    rewrites.inject_prefetch = rewrites.map_and_batch_fusion = rewrites.map_parallelization = False
    return options


def _examples_in_memory(network: NetworkInTensorflow, seed: int, workers: int, rows: slice) -> Any:
    inputs, targets = tf.constant(network.inputs), tf.constant(network.targets)
    signature = tf.TensorSpec((network.samples,), tf.int64)
    order = tf.data.Dataset.from_generator(
        lambda: batch_numbers(len(network.targets), network.samples, seed), output_signature=signature
    )

    def fetch(numbers: Any) -> tuple[Any, Any]:
        chosen = numbers[rows]
        return tf.cast(tf.gather(inputs, chosen), network.kind), tf.gather(targets, chosen)

    return order.map(fetch, num_parallel_calls=workers or None)


def _examples_of_stream(network: NetworkInTensorflow, stream: ImageStream, workers: int, rows: slice) -> Any:
    """Batches of a stream of images, each made by one call of Python.

    A call for every image would cost eight times as much as decoding a small image.
    """
    signature = tf.TensorSpec((network.samples,), tf.int64)
    order = tf.data.Dataset.from_generator(lambda: _batch_places(stream, network.samples), output_signature=signature)
    count = rows.stop - rows.start
    shape = (count, stream.shape.height, stream.shape.width, stream.shape.channels)

    def examples(places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        pairs = [stream.example(int(place)) for place in places]
        return images_channels_last(np.stack([image for image, _ in pairs])), np.array(
            [label for _, label in pairs], np.int64
        )

    def decode(places: Any) -> tuple[Any, Any]:
        images, labels = tf.numpy_function(examples, [places[rows]], (tf.float32, tf.int64))
        images.set_shape(shape)
        labels.set_shape((count,))
        return tf.cast(images, network.kind), labels

    return order.map(decode, num_parallel_calls=workers or None)


def _batch_places(stream: ImageStream, samples: int) -> Iterator[np.ndarray]:
    """The places of the stream, one array for each batch."""
    places = stream.places()
    while True:
        yield np.fromiter(islice(places, samples), np.int64, samples)
