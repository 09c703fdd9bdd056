"""The input pipeline of a training in TensorFlow: tf.data over the examples in memory, or over a stream of images."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import tensorflow as tf

from sonda.workloads.data.image_stream import ImageStream
from sonda.workloads.in_tensorflow.network import NetworkInTensorflow
from sonda.workloads.networks.examples import arranged, batch_numbers


def batches(
    network: NetworkInTensorflow, seed: int, workers: int = 0, prefetch: int | None = None,
    stream: ImageStream | None = None, rows: slice | None = None,
) -> Iterator[tuple[Any, Any]]:  # fmt: skip
    """Endless batches of inputs and targets, in the order that all frameworks have.

    `workers` is how many calls tf.data makes side by side (0: none), `prefetch` how many batches it keeps ready (0:
    none; None: as tf.data has it, which makes a batch ahead without being asked). What decodes images is Python, and
    its calls take turns. `rows` are those of every batch that are made, where others make the rest; None: all.
    """
    rows = rows or slice(0, network.samples)
    if stream is not None:
        data = _streamed(network, stream, workers, rows)
    else:
        data = _in_memory(network, seed, workers, rows)
    if prefetch:
        data = data.prefetch(prefetch)
    if prefetch is not None:
        data = data.with_options(_as_written())
    found: Iterator[tuple[Any, Any]] = iter(data)
    return found


def _as_written() -> Any:
    """Options by which tf.data loads ahead where the pipeline says so, and nowhere else."""
    options = tf.data.Options()
    rewrites = options.experimental_optimization
    rewrites.inject_prefetch = rewrites.map_and_batch_fusion = rewrites.map_parallelization = False
    return options


def _in_memory(network: NetworkInTensorflow, seed: int, workers: int, rows: slice) -> Any:
    inputs, targets = tf.constant(network.inputs), tf.constant(network.targets)
    signature = tf.TensorSpec((network.samples,), tf.int64)
    order = tf.data.Dataset.from_generator(
        lambda: batch_numbers(len(network.targets), network.samples, seed), output_signature=signature
    )

    def fetch(numbers: Any) -> tuple[Any, Any]:
        mine = numbers[rows]
        return tf.cast(tf.gather(inputs, mine), network.kind), tf.gather(targets, mine)

    return order.map(fetch, num_parallel_calls=workers or None)


def _streamed(network: NetworkInTensorflow, stream: ImageStream, workers: int, rows: slice) -> Any:
    """A batch is one call of Python, in which images are made one by one: a call for each would cost eight times as
    much as a small image does."""
    signature = tf.TensorSpec((network.samples,), tf.int64)
    order = tf.data.Dataset.from_generator(lambda: _numbers(stream, network.samples), output_signature=signature)
    count = rows.stop - rows.start
    shape = (count, stream.shape.height, stream.shape.width, stream.shape.channels)

    def examples(places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found = [stream.example(int(place)) for place in places]
        return arranged(np.stack([image for image, _ in found])), np.array([kind for _, kind in found], np.int64)

    def decode(places: Any) -> tuple[Any, Any]:
        images, kinds = tf.numpy_function(examples, [places[rows]], (tf.float32, tf.int64))
        images.set_shape(shape)
        kinds.set_shape((count,))
        return tf.cast(images, network.kind), kinds

    return order.map(decode, num_parallel_calls=workers or None)


def _numbers(stream: ImageStream, samples: int) -> Iterator[np.ndarray]:
    """Places of the stream, a batch at a time."""
    places = stream.places()
    while True:
        yield np.fromiter(islice(places, samples), np.int64, samples)
