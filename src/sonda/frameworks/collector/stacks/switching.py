"""The time after which a thread must give up the interpreter's lock, shortened for the sampler."""

from __future__ import annotations

import functools
import sys
from typing import Any

SHORT_S = 0.0001
"""s. While the sampler waits for the lock, Python code runs on: what it does meanwhile is not seen. The interpreter's
own 5 ms are longer than many a function, and a function that gives up the lock by itself before they are over would
be seen in place of the code before it."""


class SwitchInterval:
    """The program's own interval for the program, and whoever asks for it; a short one while the sampler sleeps."""

    def __init__(self) -> None:
        self._get, self._set = sys.getswitchinterval, sys.setswitchinterval
        self.own = self._get()
        """The program's, s."""

    def begin(self) -> None:
        """Show the program its own interval from now on."""

        @functools.wraps(self._get)
        def getswitchinterval() -> float:
            return self.own

        @functools.wraps(self._set)
        def setswitchinterval(*words: Any, **named: Any) -> None:
            self._set(*words, **named)
            self.own = self._get()

        self.own = self._get()
        sys.getswitchinterval, sys.setswitchinterval = getswitchinterval, setswitchinterval

    def end(self) -> None:
        """Put everything back."""
        self.restore()
        sys.getswitchinterval, sys.setswitchinterval = self._get, self._set

    def shorten(self) -> float:
        """Set the short interval; the one that holds then, s."""
        self._set(min(SHORT_S, self.own))
        return min(SHORT_S, self.own)

    def restore(self) -> float:
        """Set the program's own interval, and return it."""
        self._set(self.own)
        return self.own
