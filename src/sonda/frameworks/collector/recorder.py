"""The recorder: events of all threads of one process, appended to one file.

File: the line `SONDA1`, then records of a type byte, a little-endian uint32 length and a payload.
`D`: a JSON object that defines something or states a fact. `E`: a thread's native id (int64), then pairs of int64.

A pair is `(code, value)`. A definition with number n is begun by code 2n and ended by code 2n+1, the value being a time
in ns (CLOCK_MONOTONIC, which all processes of a machine share). The code 2n of a definition of kind `value` carries a
number for the innermost span that is open. A record cut short by a crash is ignored by the reader.
"""

from __future__ import annotations

import atexit
import json
import os
import struct
import threading
from _thread import get_ident
from array import array
from time import perf_counter_ns

MAGIC = b"SONDA1\n"
HEAD = struct.Struct("<cI")
FLUSH_EVENTS = 100_000
FLUSH_NS = 500_000_000
"""A killed program loses at most what happened since the last flush: half a second, or fifty thousand spans."""


class Stream:
    """Events of one thread. `push((code, value, ...))` appends pairs in one step, so a flush never splits a pair."""

    __slots__ = ("backward", "detail", "engine", "events", "hooked", "layers", "native", "phases", "push")

    def __init__(self, detail: bool, engine: bool = False) -> None:
        self.events: list = []
        self.push = self.events.extend
        self.native = threading.get_native_id()
        self.layers: list = []
        """Codes of the layers whose forward is running, outermost first."""
        self.phases: list = []
        """Phases that are open, outermost first."""
        self.backward = 0
        """Code of the layer whose backward is running, 0 for none."""
        self.hooked: set = set()
        """Numbers of the autograd nodes that already carry a mark."""
        self.detail = detail
        """Whether layers are recorded, or phases only."""
        self.engine = engine
        """Whether this thread belongs to autograd's engine, which runs the backward of another thread's program."""


class Recorder:
    """Collects definitions and the streams of all threads; `flush` appends them to the file, `close` ends it."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.streams: dict = {}
        self.detail = True
        self.written = 0
        self.path = ""
        self._file = None
        self._lock = threading.RLock()
        self._pending: list = []
        self._definitions = 0
        self._codes: dict = {}
        self._flushed = perf_counter_ns()
        self._process = os.getpid()
        atexit.register(self.flush)
        os.register_at_fork(after_in_child=self._forget)

    def stream(self, engine: bool = False) -> Stream:
        """The calling thread's stream."""
        stream = self.streams.get(get_ident())
        if stream is None:
            stream = self.streams[get_ident()] = Stream(self.detail, engine)
        return stream

    def set_detail(self, detail: bool) -> None:
        """Record layers from now on, or phases only, in every thread."""
        self.detail = detail
        for stream in list(self.streams.values()):
            stream.detail = detail

    def define(self, **fields: object) -> int:
        """Define something that has spans or values; returns the code that begins it. The same fields, the same code."""
        key = json.dumps(fields, sort_keys=True, default=str)
        with self._lock:
            code = self._codes.get(key)
            if code is None:
                code = 2 * self._definitions
                self._definitions += 1
                self._codes[key] = code
                self._pending.append({"id": code // 2, **fields})
        return code

    def state(self, **fact: object) -> None:
        """Write a fact that is not an event: versions, a note, what observing costs."""
        with self._lock:
            self._pending.append(fact)

    def breathe(self, stream: Stream) -> None:
        """Called at the end of a phase: flush when enough has gathered or enough time has passed."""
        if len(stream.events) > FLUSH_EVENTS or perf_counter_ns() - self._flushed > FLUSH_NS:
            self.flush()

    def flush(self) -> None:
        """Append everything gathered so far. A full disk ends the recording, never the program."""
        with self._lock:
            if self._process != os.getpid() or not self.directory:
                return
            self._flushed = perf_counter_ns()
            blocks = []
            pending, self._pending = self._pending, []
            for fact in pending:
                blocks.append((b"D", json.dumps(fact, default=str).encode()))
            for stream in list(self.streams.values()):
                count = len(stream.events)
                if count:
                    block = array("q", stream.events[:count])
                    del stream.events[:count]
                    blocks.append((b"E", struct.pack("<q", stream.native) + block.tobytes()))
            try:
                self._append(blocks)
            except OSError:
                self.directory = ""

    def _append(self, blocks: list) -> None:
        if self._file is None:
            self.path = os.path.join(self.directory, f"{self._process}.events")
            self._file = open(self.path, "ab", buffering=0)
            self._file.write(MAGIC)
        data = b"".join(part for kind, payload in blocks for part in (HEAD.pack(kind, len(payload)), payload))
        self._file.write(data)
        self.written += len(data)

    def close(self) -> None:
        """Write what is left and close the file."""
        self.flush()
        atexit.unregister(self.flush)
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None
            self.directory = ""

    def _forget(self) -> None:
        # A forked child (a DataLoader worker) holds copies of events that its parent will write.
        self.directory = ""
        self.detail = False
        self.streams.clear()
        self._lock = threading.RLock()
