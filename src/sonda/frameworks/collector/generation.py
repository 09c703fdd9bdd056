"""Generating: which forwards of a language model make one text, told by the tokens that each is given.

With a cache the prompt is given first, and then token after token; without one, the text so far, longer by one token
each time. A number holds the rows and the length of the tokens (`torch/observe/values.py`) and whether a function that
is named for it called the model: lengths that grow by one may also be those of texts in order of their length.
"""

from __future__ import annotations

import sys
from typing import Any

LENGTH = (1 << 31) - 1
NAMED = 1 << 62
NAMES = frozenset(["generate", "generation", "sample", "sampling", "decode", "decoding", "complete", "completion"])
"""Words in the names of functions that generate."""
MOST_FRAMES = 8
"""Functions between a model and the one that generates: a caller's own, and those that wrap a call."""

_names: dict = {}
"""Whether a function's code is named for generating."""


def is_named(frame: Any) -> bool:
    """Whether this function, or one of the few that called it, is named for generating."""
    for _ in range(MOST_FRAMES):
        if frame is None:
            return False
        name = frame.f_code.co_name
        named = _names.get(name)
        if named is None:
            named = _names[name] = not NAMES.isdisjoint(name.lower().split("_"))
        if named:
            return True
        frame = frame.f_back
    return False


def goes_on(last: int, this: int, running: bool) -> bool:
    """Whether a forward given `this` goes on with the text of the one before it, given `last`.

    `running`: that one went on with a text itself.
    """
    if not last or not this or last >> 31 != this >> 31:  # other rows, or called by another kind of function
        return False
    before, length = last & LENGTH, this & LENGTH
    if length == 1:
        return before > 1 or running
    # A window of the last tokens has reached its full length.
    return bool(this & NAMED) and (length == before + 1 or (running and length == before))


def named_sequence(sequence: int) -> int:
    """The number of tokens that were given by a function named for generating; 0 stays 0."""
    return sequence | NAMED if sequence and is_named(sys._getframe(3)) else sequence
