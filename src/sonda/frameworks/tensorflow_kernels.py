"""Kernels of a few steps of a TensorFlow program: its own profiler around them, and what is said of the GPU.

A graph is run by threads of TensorFlow's own, while the program's thread waits for its end: that is where the kernels
belong.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from sonda.frameworks.announced import AnnouncedObserver
from sonda.frameworks.collector.recorder import Recorder
from sonda.frameworks.collector.tensorflow_devices import about, mark_clock
from sonda.frameworks.driving import KERNEL_STEPS, Driving
from sonda.frameworks.profiled_kernels import ProfileFile, Profiler, recorded

PROFILE = ProfileFile("TensorFlow", "profile", ".xplane.pb", "tensorflow.kernels.xplane.pb")


def record_kernels(observer: AnnouncedObserver, tf: Any, how: Driving, step: Callable[[], None]) -> None:
    """Run steps of their own whose kernels are recorded, and say which GPU it was."""
    with recorded_by(observer.recorder, tf), observer.span("pass", "kernels"):
        for _ in range(KERNEL_STEPS):
            step()
    _state_device(observer.recorder, tf, how.device)


def recorded_by(recorder: Recorder, tf: Any) -> AbstractContextManager[None]:
    """Record the kernels of what runs in this block."""
    profiler = tf.profiler.experimental

    def start(folder: str) -> None:
        # Operations of the host and frames of Python would fill the profile and say nothing of kernels.
        profiler.start(folder, profiler.ProfilerOptions(host_tracer_level=1, python_tracer_level=0))

    return recorded(recorder, Profiler(PROFILE, start, lambda: mark_clock(tf), profiler.stop))


def _state_device(recorder: Recorder, tf: Any, device: str) -> None:
    """Which GPU it was, and the most of its memory that TensorFlow held."""
    number = device.partition(":")[2] or "0"
    if found := about(tf, int(number)):
        recorder.state(devices={number: found})
