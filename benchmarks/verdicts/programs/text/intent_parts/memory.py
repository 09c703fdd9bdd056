"""Keeps long-running training within the memory of small machines."""

import contextlib
import gc


@contextlib.contextmanager
def frugal():
    """Body whose leftovers do not outlive it."""
    try:
        yield
    finally:
        gc.collect()
