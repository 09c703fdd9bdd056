"""XSpace files (`*.xplane.pb`): the profiles that TensorFlow, JAX and PyTorch/XLA write, read by their wire format.

    for plane, line, event in profile_events(path):           # small profiles: one object for every event
        plane.name, line.name                                 # "/host:CPU", "python"
        event.name, event.shown                               # "while/adam/Mul_3:Mul", "Mul"
        event.start_ns, event.duration_ns                     # since the profile's zero, see `Space.began_ns`
        event.stats                                           # {"step_num": 3, "hlo_op": "dot.4", …}

    with open_space(path) as space:                           # profiles of any size: columns, block by block
        for plane in space.planes:
            for line in plane.lines:
                for block in line.blocks():
                    block.start_ns, block.duration_ns, block.metadata    # numpy; plane.events[id].name is the name
                    block.numbers("correlation_id")                      # of every event, ABSENT where it has none

A space has planes (a host, a device), a plane lines (a thread, a stream), a line events, an event stats. Names stand in
tables of the plane, which are kept in memory; events are not: the file is mapped, and what was read is given back.
Field numbers are those of `xplane.proto` (github.com/openxla/xla, `third_party/tsl/tsl/profiler/protobuf`). A file that
was cut short is read as far as it goes. A file named `.gz` is unpacked beside others that nobody sees.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import IO

from sonda.imports.wire import NUMBER, STRETCH, fields
from sonda.imports.xplane_plane import ABSENT as ABSENT
from sonda.imports.xplane_plane import Block as Block
from sonda.imports.xplane_plane import Event, Line, Plane, Space
from sonda.imports.xplane_tables import read_space
from sonda.record.errors import SondaError

COMPILED_FROM = 4 << 20
"""Bytes of a file from which machine code is worth its start."""
GZIP = b"\x1f\x8b"
PIECE = 1 << 20
"""Bytes that are unpacked at once."""


def is_profile(head: bytes) -> bool:
    """Whether the first bytes of a file begin a plane: its name, with or without a number before it."""
    first = next(fields(head, 0, len(head)), None)
    if first is None or first.number != 1 or first.wire != STRETCH:
        return False
    for one in islice(fields(head, first.value, min(first.stop, len(head))), 2):
        if one.number == 2 and one.wire == STRETCH and one.stop <= len(head):
            name = head[one.value : one.stop]
            return bool(name) and name.isascii() and name.decode().isprintable()
        if one.number != 1 or one.wire != NUMBER:
            return False
    return False


def profile_events(path: Path) -> Iterator[tuple[Plane, Line, Event]]:
    """Every event of a profile, plane by plane and line by line. Raises SondaError where nothing can be read."""
    with open_space(path) as space:
        for plane in space.planes:
            for line in plane.lines:
                for event in line.events():
                    yield plane, line, event


@contextmanager
def open_space(path: Path) -> Iterator[Space]:
    """A file's planes, lines and tables of names; events are read from it until it is left.

    Raises SondaError for a file that cannot be read, or in which no plane begins.
    """
    try:
        data = _mapped(path)
    except OSError as error:
        raise SondaError(f"cannot read {path}: {error.strerror or error}", "name a file that can be read") from None
    try:
        space = read_space(data, len(data), len(data) >= COMPILED_FROM)
        if not space.planes:
            raise SondaError(f"{path.name} is no profile: no plane begins in it", "give a *.xplane.pb file")
        yield space
    finally:
        try:
            data.close()
        except BufferError:
            pass  # an array still looks into it: it is closed with the array


def _mapped(path: Path) -> mmap.mmap:
    with ExitStack() as stack:
        file: IO[bytes] = stack.enter_context(open(path, "rb"))
        if file.read(len(GZIP)) == GZIP:
            file = _unpacked(file, stack.enter_context(tempfile.TemporaryFile()), path.name)
        size = file.seek(0, os.SEEK_END)
        if not size:
            raise SondaError(f"{path.name} is empty", "record it again")
        return mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)


def _unpacked(file: IO[bytes], into: IO[bytes], name: str) -> IO[bytes]:
    """What a packed file holds, as far as it goes."""
    file.seek(0)
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)
    rest = b""
    try:
        while rest or (rest := file.read(PIECE)):
            into.write(unpacker.decompress(rest, PIECE))
            rest = unpacker.unconsumed_tail
            if unpacker.eof:
                # A packed file may go on with another.
                rest, unpacker = unpacker.unused_data, zlib.decompressobj(zlib.MAX_WBITS | 16)
    except zlib.error:
        if not into.tell():
            raise SondaError(f"{name} is damaged: nothing of it can be unpacked", "copy or record it again") from None
    return into
