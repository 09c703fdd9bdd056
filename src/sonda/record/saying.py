"""What is going on, said to whoever watches while it lasts."""

from __future__ import annotations

from collections.abc import Callable

Say = Callable[[str], None]
"""Told what is going on; a line takes the place of the one before."""


class Lasting(str):
    """A sentence that is to be read before the work begins: it stays on a screen, and is in a log too."""

    lasting = True


class Expected(str):
    """What is going on, with the `seconds` that it is expected to take."""

    seconds: float

    def __new__(cls, text: str, seconds: float) -> Expected:
        found = super().__new__(cls, text)
        found.seconds = seconds
        return found


def time_words(seconds: float) -> str:
    """How long something takes or is to take: `8 s`, `3 min`, `2.5 h`."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 99.5 * 60 else f"{seconds / 3600:.1f} h"
