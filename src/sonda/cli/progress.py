"""Progress: one line on the screen that says what goes on, how long it has taken and how long it will take still.

The line is written with every new sentence, and again every second, so that it moves while nothing new is said. The
time that is left comes from the sentence (`Expected` has seconds that the work should take), or from how far the work
has come (`3 of 12`) in the time so far.
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
"""Seconds after which the line shows times."""
STAGE_S, STILL_S = 5.0, 60.0
"""Least seconds between two lines of a log: where a new stage of a run has begun, and where the same one goes on."""
SHARE = re.compile(r"(\d[\d,]*) of (\d[\d,]*)")
WIPE = "\r\033[K"


class ScreenLine:
    """A line of `stream` that says what is going on. `watched` says whether anybody watches the stream."""

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
        """Show a sentence in place of the one before, and keep its time current while it lasts. '' hides the line."""
        if not text:
            self.hush()
        if not text or not self._watched():
            return
        with self._lock:
            now = self._clock()
            self._note_share(text, now)
            # Where only numbers change, the time goes on.
            if _without_numbers(text) != _without_numbers(self._text):
                self._since = now
            self._text = text
            self._show()
            self._start()

    def begin(self, text: str) -> None:
        """Show a sentence once it has lasted some seconds, unless another one comes before."""
        if not self._watched():
            return
        with self._lock:
            self._text, self._since = text, self._clock()
            self._start()

    def hush(self) -> None:
        """Hide the line."""
        with self._lock:
            if self._ticking is not None:
                self._ticking.set()
                self._ticking = None
            if self._shown:
                self._write(WIPE)
            self._text, self._total, self._shown = "", "", False

    def line(self) -> str:
        """The line as it is now: the sentence, the time so far, and the time that is left where that is known."""
        spent = self._clock() - self._since
        if spent < PATIENCE_S:
            return f"{self._text} …"
        left = self._left(spent)
        return f"{self._text} … {time_words(spent)}" + (f", about {time_words(left)} left" if left is not None else "")

    def _left(self, spent: float) -> float | None:
        if getattr(self._text, "tells_time_left", False):
            return None
        expected = getattr(self._text, "seconds", None)
        if expected is not None:
            return max(0.0, expected - spent) if spent < expected else None
        share = SHARE.search(self._text)
        if share is None:
            return None
        done, total = _parse_count(share[1]), _parse_count(share[2])
        gained, took = done - self._counted_from, self._clock() - self._counted_since
        return took / gained * (total - done) if gained > 0 and total > done else None

    def _note_share(self, text: str, now: float) -> None:
        """Remember when counting to this total began, and from where."""
        share = SHARE.search(text)
        if share is not None and share[2] != self._total:
            self._total, self._counted_since, self._counted_from = share[2], now, _parse_count(share[1])

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


class ProgressLog:
    """Chooses the sentences for a log: all of them, but of how far a run has come only that a new stage has begun, and
    now and then that it still runs."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._told = 0.0
        self._stage = ""

    def accepts(self, text: str) -> bool:
        """Whether a sentence is to be written."""
        now = self._clock()
        if isinstance(text, Reached):
            new = bool(text.stage) and text.stage != self._stage
            if now - self._told < (STAGE_S if new else STILL_S):
                return False
            self._stage = text.stage
        self._told = now
        return True


def _parse_count(text: str) -> int:
    return int(text.replace(",", ""))


def _without_numbers(text: str) -> str:
    return re.sub(r"\d[\d,.]*", "", text)


def _is_watched() -> bool:
    """Whether stderr is a terminal on which a line can be taken back."""
    return sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


SCREEN_LINE = ScreenLine(lambda: sys.stderr, _is_watched)
"""The line of this process, on stderr."""
PROGRESS_LOG = ProgressLog()
