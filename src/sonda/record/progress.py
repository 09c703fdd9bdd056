"""Sentences about what is going on, for a user who watches while it lasts. Some carry facts for the command line."""

from __future__ import annotations

from collections.abc import Callable

Say = Callable[[str], None]
"""A function that shows what is going on; a sentence takes the place of the one before."""


class Lasting(str):
    """A sentence that a user must read before the work begins: it stays on the screen, and goes into a log too."""

    lasting = True


class TimeTold(str):
    """A sentence that says itself how long is left."""

    tells_time_left = True


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
    """Changes where a new part of the run begins, such as an epoch: a log gets a line then."""
    done: float | None
    """The part of the run that is done, 0 to 1; None where it is not known."""
    seconds_left: float | None
    tells_time_left: bool
    """Whether the words say how long is left."""

    def __new__(
        cls,
        where: str,
        stage: str = "",
        done: float | None = None,
        seconds_left: float | None = None,
        tells_time_left: bool = False,
    ) -> Reached:
        """`tells_time_left` says that `where` tells it already; `seconds_left` are added to the words."""
        text = where if seconds_left is None else f"{where}, {time_words(seconds_left)} left"
        reached = super().__new__(cls, text)
        reached.where, reached.stage, reached.done, reached.seconds_left = where, stage, done, seconds_left
        reached.tells_time_left = tells_time_left or seconds_left is not None
        return reached


def time_words(seconds: float) -> str:
    """How long something takes or is to take: `8 s`, `3 min`, `2.5 h`."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 99.5 * 60 else f"{seconds / 3600:.1f} h"
