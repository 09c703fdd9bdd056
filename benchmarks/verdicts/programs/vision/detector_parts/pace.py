"""Keeps the work on frames at the rate of the camera."""

import contextlib
import time

RATE = 25.0
_opened = None


@contextlib.contextmanager
def frame_clock(number):
    """The body of frame `number`; frames begin no sooner than the camera would deliver them."""
    global _opened
    if _opened is None:
        _opened = time.perf_counter()
    yield
    due = _opened + (number + 1) / RATE
    while time.perf_counter() < due:
        time.sleep(0.001)
