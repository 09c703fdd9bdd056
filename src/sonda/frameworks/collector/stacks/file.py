"""The file of sampled stacks of one process, `<process>.stacks`.

File: the line `SONDAS1`, then records of a type byte, a little-endian uint32 length and a payload. `D`: a JSON object
that states a fact, or defines a function by the number `code`. The other payloads are rows of int64:

* `N`, a frame: the frame that called it (-1: none), its function, line, column, last line, last column (-1: unknown).
  Frames are numbered in the order of their rows. A stack is the number of its innermost frame.
* `S`, a sample: when it was taken (ns, CLOCK_MONOTONIC), native id of the thread, stack, ns since the thread's sample
  before, ns of these that the thread ran, how late the sampler was (ns), how often it waited for the interpreter's lock
  (1: it was given up by itself; more: a thread was made to give it up), and the system call that the thread was
  blocked in plus one (0: in none, or not known; 1048576: it waited for the interpreter's lock).
* `G`, a garbage collection: when it began and ended, native id of the thread, generation.

The reader ignores a record that a crash cut short.
"""

from __future__ import annotations

import os
import struct
from array import array

from ..facts import encode_fact

MAGIC = b"SONDAS1\n"
HEAD = struct.Struct("<cI")
FRAME_NUMBERS, SAMPLE_NUMBERS, COLLECTION_NUMBERS = 6, 8, 4
"""Numbers of a row."""


class StackFile:
    """The file of this process. It is opened for each append: a program may close any descriptor."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.path = ""
        """'' until something is written."""

    def append(self, facts: list, frames: array, samples: array, collections: array) -> None:
        """Append facts, then rows. Raises OSError where the disk is full."""
        blocks = [(b"D", encode_fact(fact)) for fact in facts]
        # Definitions stand before the frames that use them, frames before samples.
        blocks += [
            (kind, rows.tobytes()) for kind, rows in ((b"N", frames), (b"S", samples), (b"G", collections)) if rows
        ]
        if not blocks:
            return
        data = b"".join(HEAD.pack(kind, len(payload)) + payload for kind, payload in blocks)
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC) if self.path else self._create()
        try:
            os.write(file, data)
        finally:
            os.close(file)

    def _create(self) -> int:
        """Make a file. A process that replaces itself keeps its number, and leaves its file to be read."""
        name, number = str(os.getpid()), 0
        while True:
            self.path = os.path.join(self.directory, f"{name}-{number}.stacks" if number else f"{name}.stacks")
            try:
                file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
                break
            except FileExistsError:
                number += 1
        os.write(file, MAGIC)
        return file
