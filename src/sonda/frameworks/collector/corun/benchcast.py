"""Joins a BenchCast barrier: a process-shared `pthread_barrier_t` in shared memory, then a byte that says: wait.

A program waits once per iteration of its region of interest while the byte is set; BenchCast clears it once all
programs are inside theirs. Sizes are those of glibc on 64-bit machines (x86-64, arm64).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import queue
import threading
from typing import Any

VARIABLE = "SONDA_BARRIER"
"""Environment variable: the barrier that an observed program joins at each of its steps, `NAME` or `NAME:SECONDS`."""
LONGEST_WAIT_S = 600.0
"""Unless the variable says otherwise. BenchCast itself waits for ever: one dead program hangs all."""
NAME = "tmp_pthread_barrierattr_getpshared"
"""BenchCast's own."""
DIRECTORY = "/dev/shm"
BARRIER_BYTES = 32
DO_WAIT = BARRIER_BYTES
SIZE = 40
SERIAL_THREAD = -1
"""What `pthread_barrier_wait` returns in one of the threads that it lets go; 0 in the others."""


class BarrierError(Exception):
    """Why a barrier cannot be joined, or was not passed."""


class Barrier:
    """A barrier that somebody else made. `wait` once per iteration; `close` at the end."""

    def __init__(self, name: str = NAME, timeout: float | None = None) -> None:
        """`timeout`: seconds to wait for the others at most. Raises BarrierError where there is no such barrier."""
        self.name = name
        self.timeout = timeout
        if not name or "/" in name:
            raise BarrierError(f"{name!r} is not the name of shared memory")
        try:
            descriptor = os.open(os.path.join(DIRECTORY, name), os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise BarrierError(f"there is no barrier {name!r} in {DIRECTORY} ({error.strerror})") from None
        try:
            if os.fstat(descriptor).st_size < DO_WAIT + 1:
                raise BarrierError(f"the shared memory {name!r} is too small for a barrier")
            self._memory = mmap.mmap(descriptor, SIZE if os.fstat(descriptor).st_size >= SIZE else DO_WAIT + 1)
        finally:
            os.close(descriptor)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self._wait = ctypes.CDLL(None).pthread_barrier_wait
        self._wait.argtypes = [ctypes.c_void_p]
        self._asked: Any = None
        self._answers: Any = None
        self._process = 0

    @property
    def waits(self) -> bool:
        """Whether the programs are still to wait for each other."""
        return self._memory[DO_WAIT] != 0

    def wait(self) -> bool:
        """Wait for all others, if that is still asked for; returns whether it was.

        Raises BarrierError when they do not come in time. The wait itself cannot be taken back: it goes on in a thread
        of its own, so that an interrupt or the time limit reaches the program all the same.
        """
        if not self.waits:
            return False
        if self._process != os.getpid():  # also after a fork, which leaves threads behind
            self._process = os.getpid()
            self._asked, self._answers = queue.SimpleQueue(), queue.SimpleQueue()
            threading.Thread(target=self._serve, args=(self._asked, self._answers), daemon=True).start()
        self._asked.put(True)
        try:
            result = self._answers.get(timeout=self.timeout)
        except queue.Empty:
            self._process = 0
            raise BarrierError(f"the others did not come to the barrier {self.name!r} in {self.timeout:g} s") from None
        if result not in (0, SERIAL_THREAD):
            raise BarrierError(f"waiting at the barrier {self.name!r} failed: {os.strerror(result)}")
        return True

    def _serve(self, asked: Any, answers: Any) -> None:
        while asked.get():
            answers.put(self._wait(self._address))

    def close(self) -> None:
        """Let go of the thread; the memory goes with the last that uses it."""
        if self._process == os.getpid():
            self._asked.put(False)
        self._process = 0


def join_from_environment(observer: Any) -> Any:
    """Where the environment names a barrier, have the program wait there after each of its steps; returns the barrier.

    A barrier that is not there, or fails later, is left, so that the program goes on; a note says so.
    """
    name, _, seconds = os.environ.get(VARIABLE, "").partition(":")
    if not name:
        return None
    schedule = observer.schedule
    try:
        barrier = Barrier(name, float(seconds or LONGEST_WAIT_S))
    except (BarrierError, ValueError) as error:
        schedule.notes.append(f"no barrier was joined: {error}")
        return None
    finished = schedule.finished

    def finished_and_waited(now: int, written: int) -> None:
        finished(now, written)
        try:
            barrier.wait()
        except BarrierError as error:
            schedule.finished = finished
            schedule.notes.append(str(error))

    schedule.finished = finished_and_waited
    schedule.notes.append(f"the program waited at the barrier {name!r} after each step while that was asked for")
    return barrier
