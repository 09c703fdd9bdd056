"""What the system knows of a thread: how long it has run, and the system call that it waits in."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from ..descriptors import close_named, move_aside

QUEUE = "/proc/thread-self/schedstat"


class SampledThread:
    """One thread of the program, from its first sample on."""

    __slots__ = ("call", "clock", "native", "ran", "resting", "since", "stack")

    def __init__(self, native: int, clock: int, time: int, stack: int) -> None:
        self.native = native
        self.clock = clock
        self.ran = read_clock(clock)
        """ns that it had run at its last sample; -1 where it has ended."""
        self.since = time
        """When its last written sample was taken, ns."""
        self.resting = 0
        """When it was last seen not to have run since then, ns; 0: it has run."""
        self.stack = stack
        self.call = 0
        """The system call that it was in at its last sample, plus one; 0: in none, or not known."""


def identify_thread(ident: int) -> tuple:
    """Native id of a thread of this interpreter and the number of its clock; () where nothing is known of it.

    The number follows from the native id, so that a thread that has ended is an error and no access to its memory.
    """
    threading: Any = sys.modules.get("threading")
    thread = threading._active.get(ident) if threading is not None else None
    native = getattr(thread, "native_id", None)
    if native is None:
        try:
            native = ~(time.pthread_getcpuclockid(ident) >> 3)
        except (OSError, OverflowError, AttributeError):
            return ()
    return native, (~native << 3) | 6  # of one thread (4), by the scheduler (2): include/linux/posix-timers.h


def read_clock(clock: int) -> int:
    """ns that a thread has run; -1 where it has ended."""
    try:
        return time.clock_gettime_ns(clock)
    except OSError:
        return -1


def read_call(native: int) -> int:
    """The number of the system call that a thread is blocked in, plus one; 0 where it runs, or nothing tells."""
    try:
        text = _read_file(f"/proc/self/task/{native}/syscall")
        number = int(text.split(None, 1)[0])
    except (OSError, IndexError, ValueError):
        return 0  # `running` is no number
    return number + 1 if number >= 0 else 0


class RunQueue:
    """How long the calling thread stood in the queue for a processor. The file stays open: opening takes longest."""

    def __init__(self) -> None:
        try:
            self._file = move_aside(os.open(QUEUE, os.O_RDONLY | os.O_CLOEXEC))
        except OSError:
            self._file = -1

    def read(self) -> int:
        """ns; 0 where the kernel does not tell."""
        try:
            # A program may have closed the file and got its number for one of its own: this leaves that as it is.
            return int(os.pread(self._file, 64, 0).split()[1])
        except (OSError, IndexError, ValueError):
            return 0

    def close(self) -> None:
        close_named(self._file, "schedstat")


def _read_file(path: str) -> bytes:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, 256)
    finally:
        os.close(file)
