"""What a compiled function does inside: the framework's own profiler around a few calls of it.

Such calls are of the pass `pieces`, and their times are not shown as timings. The profile lies beside the events; who
reads both finds in the profile how long each operation took.
"""

from __future__ import annotations

import os
import tempfile
from abc import ABC, abstractmethod
from collections import deque
from contextlib import contextmanager, suppress
from time import perf_counter_ns as now
from typing import Any

from .callgrind import VARIABLE
from .failure import first_line

AFTER = 10
"""Calls of a function before: the first are slower, and a program of few steps is left alone."""
CALLS = 5
LONGEST = 10_000_000_000
"""ns from the first to the last of them; the settings of a watch may say `longest` instead."""
OWN = (b"rofiler session", b"rofiler_session", b"ProfilerSession", b"ollecting XSpace", b"session_manager.cc")
"""What profilers write to stderr when they start and stop."""

PROFILING = "the program uses the profiler itself"
TAKEN = ("Only one profile", "Another profil")
"""In what JAX, TensorFlow and XLA say where a profiler runs already."""
REMEMBERED = 64
"""Calls among which a step is looked for."""


class PiecePass(ABC):
    """`begins` and `ended` stand around every call of a function that may be profiled.

    A framework says how its profiler starts and stops: `start_profile(folder)` and `stop_profile(save)`.
    """

    PASS = "pieces"
    PREFIX = "profile"
    """Of folders with profiles."""
    MOST = 1
    """Functions that are profiled."""
    TRIES = 1
    """Profiles of one function, where something was compiled in one of its calls."""
    SPOILT = "something was compiled in the calls that were profiled, or they failed"

    def __init__(self, recorder: Any, wanted: bool) -> None:
        self.recorder = recorder
        self.code = recorder.define(kind="pass", name=self.PASS)
        self.function = 0
        """The number of the function that is, or was last, profiled."""
        self.folder = ""
        # Under an emulator a profile would be the emulator's.
        self.wanted = bool(wanted and recorder.directory and VARIABLE not in os.environ)
        self.left = self.MOST if self.wanted else 0
        """Functions that may still be profiled, the present one among them."""
        self.running = False
        self.done = 0
        """Calls in the present profile."""
        self.why = ""
        """Why there is no profile, or none that is complete."""
        self.spent = 0
        """ns of starting and stopping the profiler, which the program waits for between its calls."""
        self._settling = False
        """A profile has just ended, and the step that comes has waited for it."""
        self._seen: dict = {}
        """Calls by the number of a function."""
        self._tried: dict = {}
        """Profiles by the number of a function."""
        self._until = 0
        """ns, when a profile ends that was not complete by then."""

    @abstractmethod
    def start_profile(self, folder: str) -> None:
        """Begin a profile that is written to a folder."""

    @abstractmethod
    def stop_profile(self, save: bool) -> None:
        """End it; without `save` nothing is kept."""

    def is_ready(self) -> bool:
        """Whether a profile would tell something by now."""
        return True

    @abstractmethod
    def keep_profile(self) -> None:
        """A profile in `folder` is complete, or as much as there will be of it."""

    def begin_call(self, number: int) -> bool:
        """Whether the call that comes, of a function with this number, is profiled."""
        self.end_if_late()
        if not self.left:
            return False
        if self.running:
            return number == self.function
        seen = self._seen[number] = self._seen.get(number, 0) + 1
        if seen <= AFTER or not self.is_ready() or self._tried.get(number, 0) >= self.TRIES:
            return False
        self._tried[number] = self._tried.get(number, 0) + 1
        self.function, self.done = number, 0
        self._start()
        return self.running

    def end_if_late(self) -> None:
        """Something else is called: a profile must not grow for as long as the function does not come again."""
        if self.running and now() > self._until:
            self.end()

    def end_call(self, traced: bool) -> None:
        """A call that was profiled is over; one in which something was made tells nothing of the others."""
        self.done += 1
        if traced:
            self._seen[self.function], self.why = 0, self.SPOILT
            self.end(keep=False)
        elif self.done == CALLS:
            self.end()

    def _start(self) -> None:
        number = sum(self._tried.values())
        self.folder = os.path.join(self.recorder.directory, f"{self.PREFIX}-{os.getpid()}-{number}")
        begin = now()
        try:
            with silence_profiler():
                self.start_profile(self.folder)
            self.running, self._until = True, now() + LONGEST
        except Exception as error:
            taken = any(words in str(error) for words in TAKEN)  # by the program, or by somebody outside
            why = PROFILING if taken else f"the profiler did not start: {first_line(error)}"
            self.left, self.folder, self.why = 0, "", why
        self.spent += now() - begin

    def end(self, keep: bool = True) -> None:
        """End the present profile."""
        if not self.running:
            return
        self.running = False
        begin = now()
        try:
            with silence_profiler():
                self.stop_profile(True)
        except Exception as error:  # no room for the profile, perhaps
            keep, self.why = False, f"the profile was not written: {first_line(error)}"
            with suppress(Exception):
                self.stop_profile(False)
        if keep and self.done:
            self._tried[self.function] = self.TRIES
            self.keep_profile()
        else:
            self.folder = ""
        if keep or self._tried[self.function] >= self.TRIES:
            self.left = max(self.left - 1, 0)
        self.spent += now() - begin
        self._settling = True

    def pop_settling(self) -> bool:
        """Whether the step that begins with this call has waited for a profile to be written: asked once for each."""
        was, self._settling = self._settling, False
        return was

    def stop(self) -> None:
        """No more; also where the program wants the profiler for itself."""
        self.end()
        self.left = 0

    def wrap_start(self, original: Any) -> Any:
        """What starts the profiler, for the program: ours ends first, because there can be one only."""

        def start(*args: Any, **kwargs: Any) -> Any:
            if self.running:
                self.end(keep=False)
                self.left, self.why = 0, PROFILING
            return original(*args, **kwargs)

        return start


class CallHistory:
    """Which functions a program calls one after another."""

    def __init__(self) -> None:
        self._recent: deque = deque(maxlen=REMEMBERED)

    def add(self, number: int) -> None:
        """A function with this number is about to be called."""
        self._recent.append(number)

    def step_functions(self) -> set:
        """What a step calls that begins with the call that comes: as much as was called since the same one before."""
        *before, number = self._recent
        return {number, *(before[len(before) - before[::-1].index(number) :] if number in before else ())}


@contextmanager
def silence_profiler() -> Any:
    """Keep the profiler's own lines from the program's stderr; what others write meanwhile comes out afterwards."""
    try:
        kept = os.dup(2)
    except OSError:  # the program has closed it
        yield
        return
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            said.seek(0)
            for line in said:
                if not any(word in line for word in OWN):
                    os.write(2, line)
            os.close(kept)
