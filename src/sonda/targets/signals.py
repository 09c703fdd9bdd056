"""Signals of this process, handled by others for a while."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def handled(handler: Callable[[int, object], None], *numbers: signal.Signals) -> Iterator[None]:
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
