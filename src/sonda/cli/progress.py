"""Progress: one line for somebody who watches, which says how long something has taken and how long it will take still.

The line is written when something is said, and again every second, so that what is silent for long still moves. How
long is left comes from whoever says it (a sentence with `seconds`, what it is expected to take), or from how far it has
got (`3 of 12`) in the time so far.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable
from time import monotonic
from typing import TextIO

from sonda.record.progress import Reached, time_words

EVERY_S = 1.0
PATIENCE_S = 2.0
"""From here on times are told."""
STAGE_S, STILL_S = 5.0, 60.0
"""From line to line of a log, at least: where a new stage of a run has begun, and where it goes on."""
SHARE = re.compile(r"(\d[\d,]*) of (\d[\d,]*)")
WIPE = "\r\033[K"


class Progress:
    """What is going on. `watched` says whether anybody watches `stream`."""

    def __init__(
        self, stream: Callable[[], TextIO], watched: Callable[[], bool], clock: Callable[[], float] = monotonic
    ) -> None:
        self._stream, self._watched, self._clock = stream, watched, clock
        self._text: str = ""
        self._since = 0.0
        self._shown = False
        self._total = ""
        self._counted_since, self._counted_from = 0.0, 0
        self._lock = threading.Lock()
        self._ticking: threading.Event | None = None

    def say(self, text: str) -> None:
        """Show this in place of what was shown; told to the second while it lasts. '' takes the line away."""
        if not text:
            self.hush()
        if not text or not self._watched():
            return
        with self._lock:
            now = self._clock()
            self._note_share(text, now)
            # A line that only counts on goes on from the same beginning.
            if _without_numbers(text) != _without_numbers(self._text):
                self._since = now
            self._text = text
            self._show()
            self._start()

    def begin(self, text: str) -> None:
        """Show this only once it has lasted, where nothing else is said until then."""
        if not self._watched():
            return
        with self._lock:
            self._text, self._since = text, self._clock()
            self._start()

    def hush(self) -> None:
        """Take the line away."""
        with self._lock:
            if self._ticking is not None:
                self._ticking.set()
                self._ticking = None
            if self._shown:
                self._write(WIPE)
            self._text, self._total, self._shown = "", "", False

    def line(self) -> str:
        """What is shown now: the text, how long it has taken, how long is left as far as that can be told."""
        spent = self._clock() - self._since
        if spent < PATIENCE_S:
            return f"{self._text} …"
        left = self._left(spent)
        return f"{self._text} … {time_words(spent)}" + (f", about {time_words(left)} left" if left is not None else "")

    def _left(self, spent: float) -> float | None:
        if " left" in self._text:
            return None  # whoever said it knows better
        expected = getattr(self._text, "seconds", None)
        if expected is not None:
            return max(0.0, expected - spent) if spent < expected else None
        share = SHARE.search(self._text)
        if share is None:
            return None
        done, total = _count(share[1]), _count(share[2])
        gained, took = done - self._counted_from, self._clock() - self._counted_since
        return took / gained * (total - done) if gained > 0 and total > done else None

    def _note_share(self, text: str, now: float) -> None:
        """Remember when counting to this total began, and from where."""
        share = SHARE.search(text)
        if share is not None and share[2] != self._total:
            self._total, self._counted_since, self._counted_from = share[2], now, _count(share[1])

    def _start(self) -> None:
        if self._ticking is None:
            self._ticking = threading.Event()
            threading.Thread(target=self._tick, args=(self._ticking,), daemon=True).start()

    def _tick(self, ended: threading.Event) -> None:
        while not ended.wait(EVERY_S):
            with self._lock:
                if not ended.is_set() and (self._shown or self._clock() - self._since >= PATIENCE_S):
                    self._show()

    def _show(self) -> None:
        from sonda.report.labels import plain, shorten
        from sonda.report.screen import width_of

        self._shown = True
        room = (width_of(self._stream()) or 80) - 1
        self._write(WIPE + shorten(plain(self.line()), room, front=False))

    def _write(self, text: str) -> None:
        try:
            self._stream().write(text)
            self._stream().flush()
        except (OSError, ValueError):
            pass  # nobody listens any more


class Log:
    """What a log is told: all that is said, but of how far a run has come only that a new stage of it has begun, and
    that it still runs."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._told = 0.0
        self._stage = ""

    def takes(self, text: str) -> bool:
        """Whether this is to be written."""
        now = self._clock()
        if isinstance(text, Reached):
            new = bool(text.stage) and text.stage != self._stage
            if now - self._told < (STAGE_S if new else STILL_S):
                return False
            self._stage = text.stage
        self._told = now
        return True


def _count(text: str) -> int:
    return int(text.replace(",", ""))


def _without_numbers(text: str) -> str:
    return re.sub(r"\d[\d,.]*", "", text)


def _somebody() -> bool:
    """Whether stderr is a terminal on which a line can be taken back."""
    return sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


SHOWN = Progress(lambda: sys.stderr, _somebody)
"""The line of this process."""
LOG = Log()
