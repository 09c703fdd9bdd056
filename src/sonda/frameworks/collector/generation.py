"""Text generation: finds which forwards of a language model generate one text, from the tokens that each is given.

With a cache, a program gives the model the prompt first and then token after token. Without a cache, it gives the text
so far, longer by one token each time. One number (`token_sequence` in `torch/observe/values.py`) holds the rows and the
length of the tokens, and whether a function whose name speaks of generating called the model. The name is needed
because lengths that grow by one may also be those of texts sorted by length.
"""

from __future__ import annotations

import sys
from typing import Any

LENGTH = (1 << 31) - 1
NAMED = 1 << 62
NAMES = frozenset(["generate", "generation", "sample", "sampling", "decode", "decoding", "complete", "completion"])
"""Words in the names of functions that generate text."""
MOST_FRAMES = 8
"""Callers of a model that are looked at: wrappers of the call and functions of the program stand between."""

_names: dict = {}
"""By the name of a function: whether it speaks of generating."""


def is_called_to_generate(frame: Any) -> bool:
    """Whether the name of this function, or of one of its nearest callers, speaks of generating."""
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


def continues_text(last: int, this: int, running: bool) -> bool:
    """Whether a forward given the tokens `this` continues the text of the forward before it, given `last`.

    `running`: the forward before it continued a text itself.
    """
    if not last or not this or last >> 31 != this >> 31:  # the number of rows differs, or the kind of caller
        return False
    before, length = last & LENGTH, this & LENGTH
    if length == 1:
        return before > 1 or running
    # A window of the last tokens has reached its full length.
    return bool(this & NAMED) and (length == before + 1 or (running and length == before))


def mark_generation(sequence: int) -> int:
    """The number of these tokens, marked where the caller's name speaks of generating; 0 stays 0."""
    return sequence | NAMED if sequence and is_called_to_generate(sys._getframe(3)) else sequence
