"""Kernels of a few steps: a framework's own profiler around them, and its file kept beside the events.

The file is read like any imported one. Its clock is tied to the collector's by the same marks as torch.profiler's.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sonda.frameworks.collector.failure import first_line
from sonda.frameworks.collector.recorder import Recorder


@dataclass(frozen=True)
class ProfileFile:
    """What the profiler of a framework leaves that holds kernels."""

    framework: str
    """As it is said: `JAX`."""
    what: str
    """As it is said: `trace`."""
    ending: str
    """Of its name in the profiler's folder."""
    kept: str
    """How its name ends beside the events."""


@dataclass(frozen=True)
class Profiler:
    """How a profiler is used: `start` is given a folder, `mark` writes the collector's clock into the profile."""

    file: ProfileFile
    start: Callable[[str], None]
    mark: Callable[[], None]
    stop: Callable[[], None]


@contextmanager
def profile_kernels(recorder: Recorder, profiler: Profiler) -> Iterator[None]:
    """Record the kernels of what runs in this block; where the profiler fails, the reason is stated instead."""
    folder = Path(recorder.directory) / f"{profiler.file.framework.lower()}-profile"
    try:
        profiler.start(str(folder))
        profiler.mark()
    except Exception as error:
        recorder.state(no_kernels=first_line(error, f"{profiler.file.framework}'s profiler failed"))
        yield
        return
    try:
        yield
    finally:
        try:
            profiler.mark()
            profiler.stop()
            keep_profile(recorder, folder, profiler.file)
        except Exception as error:
            recorder.state(no_kernels=first_line(error, f"{profiler.file.framework}'s profiler failed"))


def keep_profile(recorder: Recorder, folder: Path, file: ProfileFile) -> None:
    """Put the file that a profiler left in a folder beside the events, and say which thread launched its kernels.

    The thread waits for what it launches, so that whatever the file calls it, it is the one that launched.
    """
    found = sorted(folder.glob(f"**/*{file.ending}"))
    if not found:
        recorder.state(no_kernels=f"{file.framework}'s profiler wrote no {file.what}")
        return
    name = f"{os.getpid()}-{file.kept}"
    shutil.move(found[-1], Path(recorder.directory) / name)
    shutil.rmtree(folder, ignore_errors=True)
    recorder.state(kernels=name, launching=recorder.stream().native)
