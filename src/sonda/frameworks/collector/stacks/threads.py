"""What the system knows of a thread: how long it has run, and the system call that it waits in."""

from __future__ import annotations

import ctypes
import os
import resource
import sys
import time
from time import perf_counter_ns as now
from typing import Any

LONGEST = 256
"""Bytes of a file that are read."""
FUTEX = {"x86_64": 202}.get(os.uname().machine, 98)
"""Number of the system call by which threads wait for each other: that of x86-64, and that of most others."""
LOCK = 1 << 20
"""In the place of a system call: the thread waits for the interpreter's lock."""
LOCK_SIZE = 192
"""Bytes: the interpreter's lock consists of several things to wait for, side by side."""
LEARNING_NS = 20_000_000
"""ns that the program waits at most, once, until a new thread waits for the lock: on a crowded machine that one does
not run at once."""


class SampledThread:
    """One thread of the program, from its first sample on."""

    __slots__ = ("call", "clock", "native", "ran", "resting", "since", "stack")

    def __init__(self, native: int, time: int, stack: int) -> None:
        self.native = native
        self.clock = clock_of(native)
        self.ran = read_clock(self.clock)
        """ns that it had run at its last sample; -1 where it has ended."""
        self.since = time
        """When its last written sample was taken, ns."""
        self.resting = 0
        """When it was last seen not to have run since then, ns; 0: it has run."""
        self.stack = stack
        self.call = 0
        """The system call that it was in at its last sample, plus one; 0: in none, or not known."""


def identify_thread(ident: int) -> int:
    """Native id of a thread of this interpreter; 0 where nothing is known of it."""
    threading: Any = sys.modules.get("threading")
    thread = threading._active.get(ident) if threading is not None else None
    native = getattr(thread, "native_id", None)
    # A forked child may still have the parent's number for its thread.
    if native is None or read_clock(clock_of(native)) < 0:
        try:
            native = ~(time.pthread_getcpuclockid(ident) >> 3)
        except (OSError, OverflowError, AttributeError):
            return 0
    return int(native)


def clock_of(native: int) -> int:
    """The number of a thread's clock: of one thread (4), by the scheduler (2), as in include/linux/posix-timers.h.

    It follows from the native id, so that asking for a thread that has ended is an error and no access to its memory.
    """
    return (~native << 3) | 6


def read_clock(clock: int) -> int:
    """ns that a thread has run; -1 where it has ended."""
    try:
        return time.clock_gettime_ns(clock)
    except OSError:
        return -1


class SystemCalls:
    """Asks what a thread is blocked in, without giving up the interpreter's lock: threads must not move meanwhile.

    So the functions of the C library are called as the interpreter calls its own, with the lock held.
    """

    def __init__(self) -> None:
        library = ctypes.PyDLL(None)
        self._open, self._read, self._close = library.open, library.read, library.close
        self._yield = library.sched_yield
        self._text = ctypes.create_string_buffer(LONGEST)
        self._lock = 0
        """Address of the memory in which threads wait for the interpreter's lock; 0: unknown."""

    def read(self, native: int) -> int:
        """The number of the system call that a thread is blocked in, plus one; LOCK where it waits for the
        interpreter's lock; 0 where it runs, or nothing tells."""
        call = self._ask(native)
        if not call:
            return 0
        number, address = call
        if self._lock and number == FUTEX and abs(address - self._lock) < LOCK_SIZE:
            return LOCK
        return int(number) + 1

    def learn_lock(self, native: int) -> None:
        """Learn where threads wait for the interpreter's lock, from a thread that was just made: while the caller holds
        the lock, it can wait for nothing else."""
        last = now() + LEARNING_NS
        while not self._lock and now() < last:
            call = self._ask(native)
            if call and call[0] == FUTEX:
                self._lock = call[1]
            else:
                self._yield()  # to a thread that wants this processor

    def _ask(self, native: int) -> tuple:
        """Number and first argument of the call; () where the thread runs, or nothing tells."""
        file = self._open(f"/proc/self/task/{native}/syscall".encode(), os.O_RDONLY | os.O_CLOEXEC)
        if file < 0:
            return ()
        size = self._read(file, self._text, LONGEST)
        self._close(file)
        words = self._text.raw[: max(size, 0)].split(None, 2)
        if len(words) < 2:  # `running`
            return ()
        try:
            number = int(words[0])
            return (number, int(words[1], 16)) if number >= 0 else ()
        except ValueError:
            return ()


def count_blocks() -> int:
    """How often the calling thread has given up its processor to wait for something."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
