"""Signals: handlers for a while, a signal when the parent ends, and words for how a child ended."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PR_SET_PDEATHSIG = 1


@contextmanager
def handle_signals(handler: Callable[[int, object], None], *numbers: signal.Signals) -> Iterator[None]:
    """Have `handler` handle these signals until the block ends. Outside of the main thread nothing is changed."""
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
    """Have the kernel send this process a signal when its parent ends, so that it cannot disturb the next measurement.

    Where the process `parent` is given and has ended already, the signal is sent at once.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)
    if parent and os.getppid() != parent:
        os.kill(os.getpid(), number)


def signal_name(number: int) -> str:
    """`SIGKILL`; `signal 40` for one of those that have no name of their own."""
    return next((known.name for known in signal.Signals if known.value == number), f"signal {number}")


def describe_exit(code: int) -> str:
    """How a child ended: `ended with code 1`, or `was ended by SIGTERM` for a negative code."""
    if code >= 0:
        return f"ended with code {code}"
    return f"was ended by {signal_name(-code)}" + (" (out of memory?)" if code == -signal.SIGKILL else "")
