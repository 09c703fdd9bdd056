"""The input pipeline of a training in TensorFlow: tf.data over the examples in memory, or over a stream of images."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from sonda.workloads.data.image_stream import ImageStream
from sonda.workloads.examples import batch_numbers
from sonda.workloads.in_tensorflow.network import NetworkInTensorflow, arranged

LABEL = {True: tf.float32, False: tf.int64}
"""Type of a target: rows of 0 and 1, or the number of a class."""


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
    places = tf.data.Dataset.from_generator(stream.places, output_signature=tf.TensorSpec((), tf.int64))
    shape = (stream.shape.height, stream.shape.width, stream.shape.channels)

    def example(place: Any) -> tuple[np.ndarray, np.int64]:
        image, kind = stream.example(int(place))
        return arranged(image[None])[0], np.int64(kind)

    def decode(place: Any) -> tuple[Any, Any]:
        image, kind = tf.numpy_function(example, [place], (tf.float32, tf.int64))
        image.set_shape(shape)
        kind.set_shape(())
        return tf.cast(image, network.kind), kind

    mine = places.batch(network.samples, drop_remainder=True).map(lambda batch: batch[rows]).unbatch()
    decoded = mine.map(decode, num_parallel_calls=workers or None)
    return decoded.batch(rows.stop - rows.start, drop_remainder=True)
