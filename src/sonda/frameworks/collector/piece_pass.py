"""Looks inside a compiled function: the framework's own profiler runs around a few calls of it.

Such calls belong to the pass `pieces`, and their times are not shown as timings. The profile lies beside the events and
tells how long each operation took.
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
"""Calls of a function before the profile: the first ones are slower, and programs of few steps have none."""
CALLS = 5
LONGEST = 10_000_000_000
"""ns from the first to the last profiled call; the setting `longest` of a watch replaces it."""
OWN = (b"rofiler session", b"rofiler_session", b"ProfilerSession", b"ollecting XSpace", b"session_manager.cc")
"""Parts of the lines that profilers write to stderr when they start and stop."""

PROFILING = "the program uses the profiler itself"
ALREADY_RUNNING = ("Only one profile", "Another profil")
"""Parts of the errors of JAX, TensorFlow and XLA where a profiler runs already."""
REMEMBERED = 64
"""How many calls a history holds."""


class PiecePass(ABC):
    """Profiles some calls of a compiled function. `begin_call` and `end_call` stand around every such call.

    A subclass says how its framework's profiler starts and stops: `start_profile(folder)`, `stop_profile(save)`.
    """

    PASS = "pieces"
    PREFIX = "profile"
    """Prefix of the names of folders with profiles."""
    MOST = 1
    """How many functions are profiled."""
    TRIES = 1
    """How often one function is profiled, where something was compiled in its calls."""
    SPOILT = "something was compiled in the calls that were profiled, or they failed"

    def __init__(self, recorder: Any, wanted: bool) -> None:
        self.recorder = recorder
        self.code = recorder.define(kind="pass", name=self.PASS)
        self.function = 0
        """The number of the function that is, or was last, profiled."""
        self.folder = ""
        # Under an emulator a profile would show the emulator.
        self.wanted = bool(wanted and recorder.directory and VARIABLE not in os.environ)
        self.left = self.MOST if self.wanted else 0
        """How many functions may still be profiled, with the present one."""
        self.running = False
        self.done = 0
        """Calls in the present profile."""
        self.why = ""
        """The reason why there is no profile, or no complete one."""
        self.spent = 0
        """ns spent on starting and stopping the profiler, while the program waits between its calls."""
        self._settling = False
        """Whether a profile has just ended: the next step has waited for it."""
        self._seen: dict = {}
        """How many calls each function had, by its number."""
        self._tried: dict = {}
        """How many profiles each function had, by its number."""
        self._until = 0
        """When an incomplete profile ends, ns."""

    @abstractmethod
    def start_profile(self, folder: str) -> None:
        """Start the profiler, which writes to a folder."""

    @abstractmethod
    def stop_profile(self, save: bool) -> None:
        """Stop the profiler; without `save` it writes nothing."""

    def is_ready(self) -> bool:
        """Whether a profile can tell something by now."""
        return True

    @abstractmethod
    def keep_profile(self) -> None:
        """Keep the profile in `folder`, which is complete or was ended early."""

    def begin_call(self, number: int) -> bool:
        """A call of the function with this number begins; whether it is profiled."""
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
        """End a profile whose time is over: it must not grow while other functions are called."""
        if self.running and now() > self._until:
            self.end()

    def end_call(self, traced: bool) -> None:
        """A profiled call ended. One in which something was `traced` or compiled spoils the profile."""
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
            in_use = any(words in str(error) for words in ALREADY_RUNNING)
            why = PROFILING if in_use else f"the profiler did not start: {first_line(error)}"
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
        except Exception as error:  # the disk may be full
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
        """Whether the step that begins with this call waited for a profile to be written; False when asked again."""
        settling, self._settling = self._settling, False
        return settling

    def stop(self) -> None:
        """End the present profile, and begin no other."""
        self.end()
        self.left = 0

    def wrap_start(self, original: Any) -> Any:
        """Wrap the function by which the program starts the profiler: our profile ends first, as only one can run."""

        def start(*args: Any, **kwargs: Any) -> Any:
            if self.running:
                self.end(keep=False)
                self.left, self.why = 0, PROFILING
            return original(*args, **kwargs)

        return start


class CallHistory:
    """The functions that a program called last, by their numbers."""

    def __init__(self) -> None:
        self._recent: deque = deque(maxlen=REMEMBERED)

    def add(self, number: int) -> None:
        """Add the function with this number, which is about to be called."""
        self._recent.append(number)

    def step_functions(self) -> set:
        """The functions of a step that begins with the last call: all since the same function was called before."""
        *before, number = self._recent
        return {number, *(before[len(before) - before[::-1].index(number) :] if number in before else ())}


@contextmanager
def silence_profiler() -> Any:
    """Keep the profiler's lines away from the program's stderr. Other lines written meanwhile come out afterwards."""
    try:
        stderr = os.dup(2)
    except OSError:  # the program has closed it
        yield
        return
    with tempfile.TemporaryFile() as captured:
        os.dup2(captured.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(stderr, 2)
            captured.seek(0)
            for line in captured:
                if not any(words in line for words in OWN):
                    os.write(2, line)
            os.close(stderr)
