"""The GPUs of a TensorFlow program: which it uses, waiting for them, marks that tie its profiler's clock to ours."""

from __future__ import annotations

from time import perf_counter_ns as now
from typing import Any

from ...collector.clock import CLOCK, MARKS


def gpus(tf: Any) -> list:
    """GPUs that the program uses. Call it once the program has computed something: asking makes TensorFlow use them."""
    return list(tf.config.list_logical_devices("GPU"))


def wait(tf: Any) -> None:
    """Wait until all devices have done all their work."""
    tf.test.experimental.sync_devices()


def mark_clock(tf: Any) -> None:
    """Write marks into the profile. The name of each holds our time before it."""
    for _ in range(MARKS):
        with tf.profiler.experimental.Trace(f"{CLOCK}{now()}"):
            pass


def describe_gpu(tf: Any, number: int) -> dict:
    """A GPU's name, and the most bytes that TensorFlow's tensors took of its memory; {} where there is no such GPU.

    TensorFlow does not tell how much memory it reserved.
    """
    devices = tf.config.list_physical_devices("GPU")
    if number >= len(devices):
        return {}
    details = tf.config.experimental.get_device_details(devices[number])
    peak = int(tf.config.experimental.get_memory_info(f"GPU:{number}")["peak"])
    return {"name": details.get("device_name", ""), "peak_allocated": peak}
