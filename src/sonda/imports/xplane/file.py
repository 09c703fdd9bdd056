"""XSpace files (`*.xplane.pb`): the profiles that TensorFlow, JAX and PyTorch/XLA write, read by their wire format.

    for plane, line, event in profile_events(path):           # small profiles: one object for every event
        plane.name, line.name                                 # "/host:CPU", "python"
        event.name, event.shown                               # "while/adam/Mul_3:Mul", "Mul"
        event.start_ns, event.duration_ns                     # since the profile's zero, see `XSpace.began_ns`
        event.stats                                           # {"step_num": 3, "hlo_op": "dot.4", …}

    with open_space(path) as space:                           # profiles of any size: columns, block by block
        for plane in space.planes:
            for line in plane.lines:
                for block in line.blocks():
                    block.start_ns, block.duration_ns, block.metadata    # numpy; plane.events[id].name is the name
                    block.numbers("correlation_id")                      # of every event, ABSENT where it has none

A space has planes (a host, a device), a plane lines (a thread, a stream), a line events, an event stats. Names stand in
tables of the plane, which are kept in memory. Events are not: the file is mapped, and pages that were read are
released. Field numbers are those of `xplane.proto` (github.com/openxla/xla, `third_party/tsl/tsl/profiler/protobuf`). A
file that was cut short is read as far as it goes. A file named `.gz` is unpacked into a temporary file.
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
from typing import IO, Any

import numpy as np

from sonda.imports.xplane.planes import ABSENT as ABSENT
from sonda.imports.xplane.planes import (
    BYTES,
    DOUBLE,
    GIVEN_BACK,
    REFERENCE,
    SIGNED,
    TEXT,
    UNSIGNED,
    EventMetadata,
    XEvent,
    XLine,
    XPlane,
    XSpace,
    release_pages,
)
from sonda.imports.xplane.scanner import DAMAGED, find_others, varint
from sonda.imports.xplane.wire import EIGHT, NUMBER, STRETCH, Buffer, Field, fields, text
from sonda.record.errors import SondaError
from sonda.record.jit import compiled

# ---- The skeleton: planes, lines and tables of names, found without reading events -----------------------------------

PLACES = 64
"""Fields of a line beside its events that are looked at."""


def read_space(data: Buffer, size: int, compiled: bool) -> XSpace:
    """What the first `size` bytes hold; `compiled` says whether machine code walks through the lines."""
    space = XSpace([])
    at = 0
    for field in fields(data, 0, size):
        at = field.stop
        if field.wire != STRETCH:
            continue
        if field.number == 1:
            space.planes.append(_read_plane(data, field, size, compiled))
        elif field.number == 2:
            space.errors.append(text(data, field.value, min(field.stop, size)))
        elif field.number == 4:
            space.hosts.append(text(data, field.value, min(field.stop, size)))
    space.truncated = at != size or any(plane.truncated for plane in space.planes)
    return space


def _read_plane(data: Buffer, whole: Field, size: int, compiled: bool) -> XPlane:
    plane = XPlane(data, compiled)
    end = min(whole.stop, size)
    stats = []
    at = whole.value
    for field in fields(data, whole.value, end):
        at = field.stop
        stop = min(field.stop, end)
        if field.number == 1 and field.wire == NUMBER:
            plane.number = field.value
        elif field.wire != STRETCH:
            continue
        elif field.number == 2:
            plane.name = text(data, field.value, stop)
        elif field.number == 3:
            plane.lines.append(_read_line(plane, field.value, stop, field.stop > end))
        elif field.number == 4:
            _read_event_metadata(plane, field.value, stop)
        elif field.number == 5:
            _read_stat_metadata(plane, field.value, stop)
        elif field.number == 6:
            stats.append(_read_stat(data, field.value, stop))
    plane.stats = plane.decoded(stats)
    plane.truncated = at != whole.stop
    return plane


def _read_line(plane: XPlane, at: int, stop: int, truncated: bool) -> XLine:
    line = XLine(plane, at, stop, truncated=truncated)
    data: Any = np.frombuffer(plane.data, np.uint8) if plane.compiled else plane.data
    find = compiled(find_others, varint) if plane.compiled else find_others
    others, ended = np.empty(PLACES, np.int64), np.zeros(4, np.int64)
    while at < stop and ended[2] != DAMAGED:
        find(data, at, min(at + GIVEN_BACK, stop), stop, others, ended)
        if stop - line.at > GIVEN_BACK:
            release_pages(plane.data, at, int(ended[0]))
        at = int(ended[0])
    line.count = int(ended[3])
    shown, display = "", 0
    for place in others[: int(ended[1])].tolist():
        field = next(fields(plane.data, place, stop), None)
        if field is None:
            continue
        if field.number == 1 and field.wire == NUMBER:
            line.number = field.value
        elif field.number == 2 and field.wire == STRETCH:
            line.name = text(plane.data, field.value, field.stop)
        elif field.number == 3 and field.wire == NUMBER:
            line.timestamp_ns = field.value
        elif field.number == 10 and field.wire == NUMBER:
            display = field.value
        elif field.number == 11 and field.wire == STRETCH:
            shown = text(plane.data, field.value, field.stop)
    line.name, line.number = shown or line.name, display or line.number
    return line


def _read_entry(data: Buffer, at: int, stop: int) -> tuple[int, int, int]:
    """Key and value of an entry of a table; the value is a stretch."""
    key, begin, end = 0, at, at
    for field in fields(data, at, stop):
        if field.number == 1 and field.wire == NUMBER:
            key = field.value
        elif field.number == 2 and field.wire == STRETCH:
            begin, end = field.value, min(field.stop, stop)
    return key, begin, end


def _read_event_metadata(plane: XPlane, at: int, stop: int) -> None:
    key, begin, end = _read_entry(plane.data, at, stop)
    name, shown, stats = "", "", []
    for field in fields(plane.data, begin, end):
        if field.wire != STRETCH:
            continue
        if field.number == 2:
            name = text(plane.data, field.value, min(field.stop, end))
        elif field.number == 4:
            shown = text(plane.data, field.value, min(field.stop, end))
        elif field.number == 5:
            stats.append(_read_stat(plane.data, field.value, min(field.stop, end)))
    plane.events[key] = EventMetadata(name or shown, shown or name, tuple(stats))


def _read_stat_metadata(plane: XPlane, at: int, stop: int) -> None:
    key, begin, end = _read_entry(plane.data, at, stop)
    for field in fields(plane.data, begin, end):
        if field.number == 2 and field.wire == STRETCH:
            plane.stat_names[key] = text(plane.data, field.value, min(field.stop, end))


def _read_stat(data: Buffer, at: int, stop: int) -> tuple[int, int, int, int]:
    """A row as in the table of a block."""
    metadata, kind, value, behind = 0, 0, 0, 0
    for field in fields(data, at, stop):
        if field.number == 1 and field.wire == NUMBER:
            metadata = field.value
        elif field.number in (UNSIGNED, SIGNED, REFERENCE) and field.wire == NUMBER:
            kind, value, behind = field.number, field.value, field.stop
        elif field.number == DOUBLE and field.wire == EIGHT and field.stop <= stop:
            kind, value, behind = (
                DOUBLE,
                int.from_bytes(data[field.value : field.stop], "little", signed=True),
                field.stop,
            )
        elif field.number in (TEXT, BYTES) and field.wire == STRETCH:
            kind, value, behind = field.number, field.value, min(field.stop, stop)
    return metadata, kind, value, behind


# ---- Opening a file -------------------------------------------------------------------------------------------------

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
    for field in islice(fields(head, first.value, min(first.stop, len(head))), 2):
        if field.number == 2 and field.wire == STRETCH and field.stop <= len(head):
            name = head[field.value : field.stop]
            return bool(name) and name.isascii() and name.decode().isprintable()
        if field.number != 1 or field.wire != NUMBER:
            return False
    return False


def profile_events(path: Path) -> Iterator[tuple[XPlane, XLine, XEvent]]:
    """Every event of a profile, plane by plane and line by line. Raises SondaError where nothing can be read."""
    with open_space(path) as space:
        for plane in space.planes:
            for line in plane.lines:
                for event in line.events():
                    yield plane, line, event


@contextmanager
def open_space(path: Path) -> Iterator[XSpace]:
    """A file's planes, lines and tables of names; events are read from it until it is left.

    Raises SondaError for a file that cannot be read, or in which no plane begins.
    """
    try:
        data = _map_file(path)
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


def _map_file(path: Path) -> mmap.mmap:
    with ExitStack() as stack:
        file: IO[bytes] = stack.enter_context(open(path, "rb"))
        if file.read(len(GZIP)) == GZIP:
            file = _unpack(file, stack.enter_context(tempfile.TemporaryFile()), path.name)
        size = file.seek(0, os.SEEK_END)
        if not size:
            raise SondaError(f"{path.name} is empty", "record it again")
        return mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)


def _unpack(file: IO[bytes], into: IO[bytes], name: str) -> IO[bytes]:
    """Unpack a gzip file into `into`, as far as it goes."""
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
