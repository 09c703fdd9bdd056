"""Kernels of a few steps of a TensorFlow program: its own profiler around them, and what is said of the GPU.

The profile (`*.xplane.pb`) is read like any imported one. Its clock is tied to the collector's by the same marks as
torch.profiler's. A graph is run by threads of TensorFlow's own, while the program's thread waits for its end: that is
where the kernels belong.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sonda.frameworks.announced import AnnouncedObserver
from sonda.frameworks.collector.recorder import Recorder
from sonda.frameworks.collector.tensorflow_devices import about, mark_clock
from sonda.frameworks.torch_driver import KERNEL_STEPS, Driving

KEPT = "tensorflow.kernels.xplane.pb"
"""How the name of a profile ends that is kept beside the events."""


def record_kernels(observer: AnnouncedObserver, tf: Any, how: Driving, step: Callable[[], None]) -> None:
    """Run steps of their own whose kernels are recorded, and say which GPU it was."""
    with recorded(observer.recorder, tf), observer.span("pass", "kernels"):
        for _ in range(KERNEL_STEPS):
            step()
    _state_device(observer.recorder, tf, how.device)


@contextmanager
def recorded(recorder: Recorder, tf: Any) -> Iterator[None]:
    """Record the kernels of what runs in this block; where TensorFlow's profiler fails, the reason is said instead."""
    folder = Path(recorder.directory) / "tensorflow-profile"
    profiler = tf.profiler.experimental
    try:
        # Operations of the host and frames of Python would fill the profile and say nothing of kernels.
        profiler.start(str(folder), profiler.ProfilerOptions(host_tracer_level=1, python_tracer_level=0))
        mark_clock(tf)
    except Exception as error:
        recorder.state(no_kernels=_first_line(error))
        yield
        return
    try:
        yield
    finally:
        try:
            mark_clock(tf)
            profiler.stop()
            keep_profile(recorder, folder)
        except Exception as error:
            recorder.state(no_kernels=_first_line(error))


def keep_profile(recorder: Recorder, folder: Path) -> None:
    """Put the profile that TensorFlow left in a folder beside the events, and say which thread its kernels are of."""
    profiles = sorted(folder.glob("**/*.xplane.pb"))
    if not profiles:
        recorder.state(no_kernels="TensorFlow's profiler wrote no profile")
        return
    name = f"{os.getpid()}-{KEPT}"
    shutil.move(profiles[-1], Path(recorder.directory) / name)
    shutil.rmtree(folder, ignore_errors=True)
    recorder.state(kernels=name, launching=recorder.stream().native)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or ["TensorFlow's profiler failed"])[0]


def _state_device(recorder: Recorder, tf: Any, device: str) -> None:
    """Which GPU it was, and the most of its memory that TensorFlow held."""
    number = device.partition(":")[2] or "0"
    if found := about(tf, int(number)):
        recorder.state(devices={number: found})
