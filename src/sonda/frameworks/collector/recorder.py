"""The recorder appends the events of all threads of one process to one file.

File: the line `SONDA1`, then records of a type byte, a little-endian uint32 length and a payload.
`D`: a JSON object that defines something or states a fact. `E`: a thread's native id (int64), then pairs of int64.
`C`: a thread's native id and a number n (int64), n lengths (uint32), then n readings of counters, as the kernel gave
them.

A pair is `(code, value)`. A definition with number n is begun by code 2n and ended by code 2n+1, the value being a time
in ns (CLOCK_MONOTONIC, which all processes of a machine share). The code 2n of a definition of kind `value` carries a
number for the innermost span that is open. A code of a begin or end may carry, from bit 32 on, the number of a
definition of kind `counters` plus one: the next reading in the file was taken there. With bit 62 the last reading holds
there too. The reader ignores a record that a crash cut short.
"""

from __future__ import annotations

import atexit
import errno
import itertools
import json
import os
import struct
import sys
import threading
import weakref
from array import array
from contextlib import contextmanager
from time import perf_counter_ns
from typing import Any

from .descriptors import file_identity, move_aside
from .facts import encode_fact

MAGIC = b"SONDA1\n"
HEAD = struct.Struct("<cI")
FLUSH_EVENTS = 100_000
FLUSH_NS = 500_000_000
FIRST_FLUSH_NS = 20_000_000
"""A killed program loses what happened since the last flush: at most half a second (a quarter of its life in the first
two seconds), or fifty thousand spans."""
CHILD_FLUSH_NS = 100_000_000
"""The same for a forked child, which its parent may end at any time."""
READING_BIT = 1 << 32
AGAIN = 1 << 62
PAUSE_SHARE = 100
PAUSED_NS = 5_000_000
"""A process may spend this time, and a hundredth of its life, on writing before it sends messages."""
APPENDING = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
MANY_STREAMS = 16
"""With more streams than this, those of ended threads are dropped."""


class _ThreadState(threading.local):
    """The stream of the calling thread."""

    stream: Any = None


class Stream:
    """Events of one thread. `push((code, value, ...))` appends pairs in one step, so a flush never splits a pair."""

    __slots__ = (
        "backward", "begin", "count", "counts", "detail", "end", "engine", "events", "hooked", "ident", "inspected",
        "layers", "native", "older", "phases", "push", "recorded", "resting", "schedule", "sequence", "updating",
    )  # fmt: skip

    def __init__(self, detail: bool, engine: bool = False) -> None:
        self.events: list = []
        self.push = self.events.extend
        self.counts: list = []
        """Readings of counters. The reader of the file decodes them."""
        self.count = self.counts.append
        self.native = threading.get_native_id()
        self.ident = threading.get_ident()
        self.layers: list = []
        """Codes of the layers whose forward is running, the outermost first."""
        self.phases: list = []
        """The open phases, the outermost first."""
        self.begin: Any = None
        """`begin(code, context)` opens a phase, `end()` closes the innermost one."""
        self.end: Any = None
        self.inspected = False
        """Whether the step is counted and its calls of modules are inspected."""
        self.backward = 0
        """Code of the layer whose backward is running, 0 for none."""
        self.hooked: set = set()
        """Numbers of the autograd nodes that carry a mark already; `older` holds earlier ones."""
        self.older: set = set()
        self.detail = detail
        """Whether layers are recorded, or phases only."""
        self.schedule: Any = None
        """The schedule that decides how the steps of this thread are recorded."""
        self.recorded = 0
        """Length of `events` when the last step ended."""
        self.updating = 0
        """Whether weights are updated by hand (`torch/observe/optimizers.py`)."""
        self.sequence: tuple = (0, 0, False)
        """The module of the last forward without gradients, the tokens given to it, whether it continued a text."""
        self.resting: tuple = ()
        """When the last forward without gradients ended, ns, and how long the thread had run until then, ns."""
        self.engine = engine
        """Whether this thread belongs to autograd's engine, which runs the backward of another thread."""


class Recorder:
    """Collects definitions and the streams of all threads. `flush` appends them to the file, `close` ends it."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.mine = _ThreadState()
        self.streams: list = []
        self.detail = True
        self.on_stream: Any = lambda stream: None
        """Called with every new stream."""
        self.on_start: Any = lambda: None
        """Called before the first stream of this process is made, and of a forked child."""
        self.on_fork: Any = None
        """Called in a forked child with the stream of the thread that forked it. The child then records its own events.

        None: a forked child records nothing.
        """
        self.facts_at_rest: Any = dict
        """Gives facts that are stated before each message, in case that the process is killed after it."""
        self.used = False
        """Whether this process has recorded anything."""
        self.child = False
        """Whether an observed process forked this one. A child makes its file with its first event."""
        self.rank: int | None = None
        """Rank among the processes that train together, where the program has told it to its framework."""
        self.written = 0
        self.path = ""
        self._file = -1
        self._identity: tuple = ()
        self._lock = threading.RLock()
        self._pending: list = []
        self._lasting: list = []
        self._definitions = 0
        self._codes: dict = {}
        self._inherited = 0
        """How many definitions the parent process made, which the child's file must have too."""
        self._began = perf_counter_ns()
        self._paused = 0
        """ns spent on writing before messages."""
        self._rests = False
        """Whether the file says that nothing may follow."""
        self.due = self._began + FIRST_FLUSH_NS
        """When the events are to be written next, ns."""
        self.off = False
        """Whether recording has ended: it was closed, the disk is full, or forked children are not observed."""
        if directory:
            atexit.register(self.flush)
            _forget_after_fork(self)

    def stream(self, engine: bool = False) -> Stream:
        """The calling thread's stream."""
        stream = self.mine.stream
        if stream is None:
            if not self.used:
                self.used = True
                self.on_start()
            stream = self.mine.stream = Stream(self.detail, engine)
            self.on_stream(stream)
            with self._lock:
                self.streams.append(stream)
        return stream

    def set_detail(self, detail: bool, stream: Stream | None = None) -> None:
        """Record layers from now on, or phases only: in every thread, or in that of `stream` and autograd's threads."""
        if stream is None:
            self.detail = detail
        for candidate in list(self.streams):
            if stream is None or candidate is stream or candidate.engine:
                candidate.detail = detail

    def define(self, **fields: object) -> int:
        """Define something that has spans or values. Returns the code that begins it; equal fields have equal codes."""
        key = json.dumps(fields, sort_keys=True, default=str)
        with self._lock:
            code = self._codes.get(key)
            if code is None:
                code = 2 * self._definitions
                self._definitions += 1
                self._codes[key] = code
                self._pending.append({"id": code // 2, **fields})
        return code

    @contextmanager
    def span(self, kind: str, name: str, counting: Any = None) -> Any:
        """Record a span that the program announces: a step, a pass. `counting` is told when a step ends."""
        stream = self.stream()
        code = self.define(kind=kind, name=name)
        stream.push((code, perf_counter_ns()))
        try:
            yield
        finally:
            stream.push((code + 1, perf_counter_ns()))
            if kind == "step" and counting is not None:
                counting.end_announced_step()

    def state(self, **fact: object) -> None:
        """Write a fact that is not an event: versions, a note, what observing costs."""
        with self._lock:
            self._pending.append(fact)

    def state_lasting(self, **fact: object) -> None:
        """Write a fact about definitions, which forked children write too."""
        with self._lock:
            self._lasting.append(fact)
            self._pending.append(fact)

    def flush_if_due(self, stream: Stream, time: int = 0) -> None:
        """At the end of a phase, at `time` (ns): flush if many events have gathered or enough time has passed."""
        if len(stream.events) > FLUSH_EVENTS or (time or perf_counter_ns()) > self.due:
            self.flush()

    @property
    def is_silent(self) -> bool:
        """Whether there is nothing to write at the end: recording has ended, or this child recorded nothing."""
        return self.off or (self.child and not self.used)

    def flush_before_message(self) -> None:
        """Write all events before a message goes to another process, which may end this one when it has it."""
        begin = perf_counter_ns()
        if self.is_silent or self._paused > PAUSED_NS + (begin - self._began) // PAUSE_SHARE:
            return
        rests = not any(stream.phases or stream.layers for stream in list(self.streams))
        if rests:
            self.state(**self.facts_at_rest(), finished=True)
        self.flush()
        if rests:
            self._rests = True
            self.due = 0  # the end of the next phase withdraws `finished`
        self._paused += perf_counter_ns() - begin

    def flush(self) -> None:
        """Append everything gathered so far. A full disk ends the recording, never the program."""
        with self._lock:
            if self.off or not self.directory:
                return
            time = perf_counter_ns()
            longest = CHILD_FLUSH_NS if self.child else FLUSH_NS
            self.due = time + min(longest, max(FIRST_FLUSH_NS, (time - self._began) >> 2))
            blocks = []
            for stream in list(self.streams):
                count = len(stream.events) & ~1  # a pair may be half there
                if count:
                    block = array("q", stream.events[:count])
                    del stream.events[:count]
                    blocks.append((b"E", struct.pack("<q", stream.native) + block.tobytes()))
                # A reading is appended before the event that speaks of it, so none is missing in the file.
                readings = stream.counts[:]
                if readings:
                    del stream.counts[: len(readings)]
                    lengths = array("I", map(len, readings)).tobytes()
                    head = struct.pack("<qq", stream.native, len(readings))
                    blocks.append((b"C", b"".join((head, lengths, *readings))))
            # Definitions are collected after the events that use them and written before them, so none is missing.
            if self.child and self._file < 0 and not blocks:
                return
            facts = [(b"D", definition) for definition in self._inherited_definitions()]
            if blocks and self._rests:
                self._rests = False
                self._pending.insert(0, {"finished": False})
            pending, self._pending = self._pending, []
            facts += [(b"D", encode_fact(fact)) for fact in pending]
            try:
                self._append(facts + blocks)
            except OSError as error:
                self._report_write_failure(error)
                self.give_up()
            for stream in self.streams:
                if stream.schedule is not None:
                    stream.schedule.apply_limits(time, self.written)
                    stream.detail = stream.detail and stream.schedule.detail
            if len(self.streams) > MANY_STREAMS:
                alive = sys._current_frames()
                self.streams[:] = [
                    stream for stream in self.streams if stream.events or stream.engine or stream.ident in alive
                ]

    def _report_write_failure(self, error: OSError) -> None:
        """Leave a file for the parent: an empty one where the disk is full, otherwise one that holds the reason."""
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        name = f"{os.getpid()}.{'full' if full else 'unwritten.failure'}"
        try:
            with open(os.path.join(self.directory, name), "wb") as file:
                file.write(b"" if full else f"{error.strerror or error}\n".encode())
        except OSError:
            pass

    def give_up(self) -> None:
        """Stop recording, and drop what was not written."""
        self.off = True
        self.set_detail(False)
        for stream in self.streams:
            stream.events.clear()
            stream.counts.clear()
        self._pending.clear()

    def withdraw(self) -> None:
        """Stop recording, and remove the file."""
        with self._lock:
            if self._file >= 0 and file_identity(self._file) == self._identity:
                os.unlink(self.path)
            self.give_up()

    def _append(self, blocks: list) -> None:
        data = b"".join(HEAD.pack(kind, len(payload)) + payload for kind, payload in blocks)
        if self._file < 0:
            self._create()  # stays open until the end
            data = MAGIC + data
        elif file_identity(self._file) != self._identity:  # the program closed it, and may have reused the number
            self._file = move_aside(os.open(self.path, APPENDING))
        left = memoryview(data)
        while left:
            count = os.write(self._file, left)
            self.written += count
            left = left[count:]

    def _create(self) -> None:
        """Create the file. A program that replaced itself keeps its process id, so the name may be in use."""
        number = 0
        while self._file < 0:
            name = f"{os.getpid()}-{number}.events" if number else f"{os.getpid()}.events"
            self.path = os.path.join(self.directory, name)
            try:
                self._file = move_aside(os.open(self.path, APPENDING | os.O_CREAT | os.O_EXCL, 0o666))
            except FileExistsError:
                number += 1
        self._identity = file_identity(self._file)

    def close(self) -> None:
        """Write what is left and close the file."""
        self.flush()
        atexit.unregister(self.flush)
        with self._lock:
            if self._file >= 0 and file_identity(self._file) == self._identity:
                os.close(self._file)
            self._file = -1
            self.give_up()

    def _inherited_definitions(self) -> list:
        """The parent's definitions as JSON, the first time that a child writes; [] afterwards."""
        if self._file >= 0 or not self._inherited:
            return []
        inherited = itertools.islice(self._codes.items(), self._inherited)
        self._inherited = 0
        return [f'{{"id": {code // 2}, {key[1:]}'.encode() for key, code in inherited]

    def begin_in_child(self) -> None:
        """In a forked child: drop the parent's events, which the parent writes itself.

        The child then records its own events, if `on_fork` is set.
        """
        self._lock = threading.RLock()  # a thread that does not exist here may have held it
        stream, self.mine.stream = self.mine.stream, None
        self.streams = []
        self._pending = []
        if self.off or self.on_fork is None:
            self.give_up()
            return
        if self._file >= 0 and file_identity(self._file) == self._identity:
            os.close(self._file)
        self._file, self._identity, self.path, self.written = -1, (), "", 0
        # Another thread of the parent may have been in the middle of a definition.
        self._inherited = self._definitions = len(self._codes)
        self._pending = list(self._lasting)
        self.child = True
        self.used = self._rests = False
        self._began, self._paused = perf_counter_ns(), 0
        self.due = 0  # a child may be killed early: its first phase is written at once
        self.on_fork(stream)


def _forget_after_fork(recorder: Recorder) -> None:
    """Call `begin_in_child` after a fork. The registration outlives the recorder, so it holds a weak reference."""
    reference = weakref.ref(recorder)

    def after() -> None:
        alive = reference()
        if alive is not None:
            alive.begin_in_child()

    os.register_at_fork(after_in_child=after)
