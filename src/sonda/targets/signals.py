"""Signals: those of this process, handled by others for a while or sent by the kernel; those that ended another."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PR_SET_PDEATHSIG = 1


@contextmanager
def handle_signals(handler: Callable[[int, object], None], *numbers: signal.Signals) -> Iterator[None]:
    """Give these signals to `handler`, and back at the end. Outside of the main thread nothing is changed."""
    try:
        old = {number: signal.signal(number, handler) for number in numbers}
    except ValueError:  # not in the main thread: whoever called has the signals
        yield
        return
    try:
        yield
    finally:
        for number, before in old.items():
            signal.signal(number, before)


def end_with_parent(number: int = signal.SIGKILL, parent: int = 0) -> None:
    """Have the kernel end this process when its parent is killed, so that it cannot disturb the next measurement; end
    it at once where that was the process `parent`, which is gone already."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)
    if parent and os.getppid() != parent:
        os.kill(os.getpid(), number)


def signal_name(number: int) -> str:
    """`SIGKILL`; `signal 40` for one of those that have no name of their own."""
    return next((known.name for known in signal.Signals if known.value == number), f"signal {number}")


def describe_exit(code: int) -> str:
    """How a child ended, by its code: `ended with code 1`; `was ended by SIGTERM` where the code is that, negative."""
    if code >= 0:
        return f"ended with code {code}"
    return f"was ended by {signal_name(-code)}" + (" (out of memory?)" if code == -signal.SIGKILL else "")
