"""A quota of processor time, as `cpu.max` of a control group gives it, for machines where no such group may be made.

In every period a process may use so much processor time; then it is stopped until the period ends. A process that waits
uses nothing of it. The governor is a process of its own and ends with its parent.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

PERIOD_S = 0.04
LOOK_S = 0.001


def clock_of(process: int) -> int:
    """The clock that counts a process's time on processors, all threads together (Linux: `CPUCLOCK_PROF | pid`)."""
    return (~process << 3) | 2


@contextmanager
def quota(process: int, share: float) -> Iterator[None]:
    """Let a process have this share of one processor, until the end of the block."""
    governor = subprocess.Popen([sys.executable, "-S", __file__, str(process), str(share)], stdin=subprocess.PIPE)
    try:
        yield
    finally:
        assert governor.stdin is not None
        governor.stdin.close()
        governor.wait()


def govern(process: int, share: float) -> None:
    """Until stdin is closed or the process is gone."""
    clock = clock_of(process)
    os.set_blocking(0, False)
    try:
        while _parent_is_there():
            end = time.monotonic() + PERIOD_S
            used = time.clock_gettime(clock) + share * PERIOD_S
            while time.clock_gettime(clock) < used and time.monotonic() < end:
                time.sleep(LOOK_S)
            if time.monotonic() < end:
                os.kill(process, signal.SIGSTOP)
                time.sleep(max(0.0, end - time.monotonic()))
                os.kill(process, signal.SIGCONT)
            over = time.clock_gettime(clock) - used
            if over > 0:
                # What was used beyond the quota, because the look came late, is owed.
                os.kill(process, signal.SIGSTOP)
                time.sleep(over / share)
                os.kill(process, signal.SIGCONT)
    except OSError:
        return  # the process is gone


def _parent_is_there() -> bool:
    try:
        return os.read(0, 1) != b""
    except BlockingIOError:
        return True


if __name__ == "__main__":
    govern(int(sys.argv[1]), float(sys.argv[2]))
