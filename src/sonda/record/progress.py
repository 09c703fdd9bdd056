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
        expected = super().__new__(cls, text)
        expected.seconds = seconds
        return expected


class Reached(str):
    """How far a run has come, in words."""

    where: str
    """The words without the time that is left."""
    stage: str
    """Changes where a new part of the run begins, such as an epoch: a log is told then."""
    done: float | None
    """The part of the run that is behind it, 0 to 1; None where nobody knows."""
    seconds_left: float | None

    def __new__(
        cls, where: str, stage: str = "", done: float | None = None, seconds_left: float | None = None
    ) -> Reached:
        text = where if seconds_left is None else f"{where}, {time_words(seconds_left)} left"
        reached = super().__new__(cls, text)
        reached.where, reached.stage, reached.done, reached.seconds_left = where, stage, done, seconds_left
        return reached


def time_words(seconds: float) -> str:
    """How long something takes or is to take: `8 s`, `3 min`, `2.5 h`."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 99.5 * 60 else f"{seconds / 3600:.1f} h"
