"""What a graph of TensorFlow does inside: its own profiler around a few calls of a function that learns.

Such calls are of the pass `pieces`, and their times are not shown as timings. The profile lies beside the events; facts
name it, and say which scopes of the graph are layers of Keras, its loss and its optimizer. Who reads both finds in the
profile, whose operations have the names of their scopes, how long each layer took.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager, suppress
from time import perf_counter_ns as now
from typing import Any

from .modelled import VARIABLE

AFTER = 10
"""Calls of a function before: the first are slower, and a program of few steps is left alone."""
CALLS = 5
LONGEST = 10_000_000_000
"""ns from the first to the last of them."""
OWN = (b"rofiler session", b"rofiler_session", b"ProfilerSession", b"ollecting XSpace", b"session_manager.cc")
"""What the profiler writes to stderr when it starts and stops."""


class GraphPass:
    """`begins` and `ended` stand around every call of a function that learns; `scoped` hears of the graph's scopes."""

    def __init__(self, recorder: Any, wanted: bool) -> None:
        self.recorder = recorder
        self.code = recorder.define(kind="pass", name="pieces")
        self.function = 0
        """The number of the function that is profiled; 0 for none yet."""
        self.graphs: list = []
        """Names of its graphs."""
        self.folder = ""
        # Under an emulator a profile would be the emulator's.
        self._left = CALLS if wanted and recorder.directory and VARIABLE not in os.environ else 0
        self._seen: dict = {}
        """Calls by the number of a function."""
        self._running = False
        self._spent = 0
        """ns of starting and stopping the profiler, which the program waits for between its calls."""
        self._until = 0
        """ns, when a profile ends that was not complete by then."""
        self.scopes: dict = {}
        """By scope: what it is (layer, loss, optimizer), its name and its class."""

    def begins(self, number: int, function: Any) -> bool:
        """Whether the call that comes, of a function with this number, is profiled."""
        if self._running and now() > self._until:
            self.stop()
        if not self._left:
            return False
        if self._running:
            return number == self.function
        seen = self._seen[number] = self._seen.get(number, 0) + 1
        if seen <= AFTER or not self.scopes:
            return False
        self.function = number
        # Keras calls the functions of training and of evaluation alike; their graphs have names of their own.
        names = [one.name for one in function._list_all_concrete_functions()]
        self.graphs = [name.decode() if isinstance(name, bytes) else str(name) for name in names]
        self._start()
        return self._running

    def meanwhile(self) -> None:
        """Something else is called: a profile must not grow for as long as the function does not come again."""
        if self._running and now() > self._until:
            self.stop()

    def ended(self, traced: bool) -> None:
        """A call that was profiled is over; one in which a graph was made tells nothing of the others."""
        self._left -= 1
        if traced:
            self.stop()
            self.folder = ""
        elif not self._left:
            self.stop()

    def scoped(self, scope: str, kind: str, name: str, class_name: str) -> None:
        """A graph is being made, and what comes is inside this scope."""
        if scope and self._left and not self._running:
            self.scopes[scope] = (kind, name, class_name)

    def _start(self) -> None:
        from tensorflow.python.profiler import profiler_v2

        self.folder = os.path.join(self.recorder.directory, f"graph-{os.getpid()}")
        begin = now()
        try:
            with _without_words():
                # Frames of Python would fill the profile and say nothing of operations.
                profiler_v2.start(self.folder, profiler_v2.ProfilerOptions(2, 0, 1))
            self._running, self._until = True, now() + LONGEST
        except Exception:  # the program, or somebody outside, profiles already
            self._left, self.folder = 0, ""
        self._spent += now() - begin

    def stop(self) -> None:
        """No more; also where the program wants the profiler for itself."""
        self._left = 0
        if not self._running:
            return
        self._running = False
        from tensorflow.python.profiler import profiler_v2

        begin = now()
        try:
            with _without_words():
                profiler_v2.stop()
        except Exception:  # no room for the profile, perhaps
            self.folder = ""
            with suppress(Exception):
                profiler_v2.stop(save=False)
        self._spent += now() - begin

    def making_room(self, original: Any) -> Any:
        """The profiler's `start` for the program: ours ends first, because there can be one only."""

        def start(*args: Any, **kwargs: Any) -> Any:
            if self._running and (not args or args[0] != self.folder):
                self.stop()
                self.folder = ""
            return original(*args, **kwargs)

        return start

    def facts(self) -> dict:
        """What is to be stated at the end."""
        if not self.folder or self._running:
            return {}
        scopes = {scope: list(about) for scope, about in self.scopes.items()}
        about = {"profile": os.path.basename(self.folder), "functions": self.graphs, "scopes": scopes}
        return {"graphs": [{**about, "spent_s": self._spent / 1e9}]}


@contextmanager
def _without_words() -> Any:
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
