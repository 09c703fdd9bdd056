"""The GPUs of a TensorFlow program: which there are, waiting for them, marks that tie its profiler's clock to ours."""

from __future__ import annotations

from time import perf_counter_ns as now
from typing import Any

from ...collector.clock import CLOCK, MARKS


def gpus(tf: Any) -> list:
    """GPUs that the program uses; asked once it has computed something, because TensorFlow then begins to use them."""
    return list(tf.config.list_logical_devices("GPU"))


def wait(tf: Any) -> None:
    """Until all devices have done what was asked of them."""
    tf.test.experimental.sync_devices()


def mark_clock(tf: Any) -> None:
    """Marks in the profile, whose names hold our time before each."""
    for _ in range(MARKS):
        with tf.profiler.experimental.Trace(f"{CLOCK}{now()}"):
            pass


def about(tf: Any, number: int) -> dict:
    """A GPU's name, and the most that TensorFlow's tensors took of its memory; it does not say what it reserved."""
    known = tf.config.list_physical_devices("GPU")
    if number >= len(known):
        return {}
    details = tf.config.experimental.get_device_details(known[number])
    peak = int(tf.config.experimental.get_memory_info(f"GPU:{number}")["peak"])
    return {"name": details.get("device_name", ""), "peak_allocated": peak}
