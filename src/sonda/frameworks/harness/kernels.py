"""Records the kernels of a few steps with a framework's own profiler, whose file lies beside the events.

The file is read like any imported trace. Marks align its clock with the collector's, as in files of torch.profiler.
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
    """The file with kernels that the profiler of a framework writes."""

    framework: str
    """Name of the framework in messages: `JAX`."""
    kind: str
    """Word for the file in messages: `trace`."""
    ending: str
    """End of its name in the profiler's folder."""
    stored: str
    """End of its name beside the events."""


@dataclass(frozen=True)
class Profiler:
    """How to use a profiler. `start` takes a folder; `mark` writes the collector's time into the profile."""

    file: ProfileFile
    start: Callable[[str], None]
    mark: Callable[[], None]
    stop: Callable[[], None]


@contextmanager
def profile_kernels(recorder: Recorder, profiler: Profiler) -> Iterator[None]:
    """Record the kernels of this block. Where the profiler fails, the reason is stated instead."""
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
    """Move the profiler's file beside the events, and state which thread launched its kernels.

    That is the calling thread, whatever number the file has for it: it waits for everything that it launches.
    """
    files = sorted(folder.glob(f"**/*{file.ending}"))
    if not files:
        recorder.state(no_kernels=f"{file.framework}'s profiler wrote no {file.kind}")
        return
    name = f"{os.getpid()}-{file.stored}"
    shutil.move(files[-1], Path(recorder.directory) / name)
    shutil.rmtree(folder, ignore_errors=True)
    recorder.state(kernels=name, launching=recorder.stream().native)
