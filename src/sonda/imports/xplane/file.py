"""The skeleton of an XSpace file: planes, lines and tables of names, found without reading events. See `xplane.py`."""

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
    Event,
    Line,
    Metadata,
    Plane,
    Space,
    give_back,
)
from sonda.imports.xplane.planes import Block as Block
from sonda.imports.xplane.scanner import DAMAGED, find_others, varint
from sonda.imports.xplane.wire import EIGHT, NUMBER, STRETCH, Buffer, Field, fields, text
from sonda.record.errors import SondaError
from sonda.record.jit import compiled

PLACES = 64
"""Fields of a line beside its events that are looked at."""


def read_space(data: Buffer, size: int, compiled: bool) -> Space:
    """What the first `size` bytes hold; `compiled` says whether machine code walks through the lines."""
    space = Space([])
    at = 0
    for one in fields(data, 0, size):
        at = one.stop
        if one.wire != STRETCH:
            continue
        if one.number == 1:
            space.planes.append(_plane(data, one, size, compiled))
        elif one.number == 2:
            space.errors.append(text(data, one.value, min(one.stop, size)))
        elif one.number == 4:
            space.hosts.append(text(data, one.value, min(one.stop, size)))
    space.truncated = at != size or any(plane.truncated for plane in space.planes)
    return space


def _plane(data: Buffer, whole: Field, size: int, compiled: bool) -> Plane:
    plane = Plane(data, compiled)
    end = min(whole.stop, size)
    stats = []
    at = whole.value
    for one in fields(data, whole.value, end):
        at = one.stop
        stop = min(one.stop, end)
        if one.number == 1 and one.wire == NUMBER:
            plane.number = one.value
        elif one.wire != STRETCH:
            continue
        elif one.number == 2:
            plane.name = text(data, one.value, stop)
        elif one.number == 3:
            plane.lines.append(_line(plane, one.value, stop, one.stop > end))
        elif one.number == 4:
            _event_metadata(plane, one.value, stop)
        elif one.number == 5:
            _stat_metadata(plane, one.value, stop)
        elif one.number == 6:
            stats.append(_stat(data, one.value, stop))
    plane.stats = plane.decoded(stats)
    plane.truncated = at != whole.stop
    return plane


def _line(plane: Plane, at: int, stop: int, truncated: bool) -> Line:
    line = Line(plane, at, stop, truncated=truncated)
    data: Any = np.frombuffer(plane.data, np.uint8) if plane.compiled else plane.data
    find = compiled(find_others, varint) if plane.compiled else find_others
    others, ended = np.empty(PLACES, np.int64), np.zeros(4, np.int64)
    while at < stop and ended[2] != DAMAGED:
        find(data, at, min(at + GIVEN_BACK, stop), stop, others, ended)
        if stop - line.at > GIVEN_BACK:
            give_back(plane.data, at, int(ended[0]))
        at = int(ended[0])
    line.count = int(ended[3])
    shown, display = "", 0
    for place in others[: int(ended[1])].tolist():
        one = next(fields(plane.data, place, stop), None)
        if one is None:
            continue
        if one.number == 1 and one.wire == NUMBER:
            line.number = one.value
        elif one.number == 2 and one.wire == STRETCH:
            line.name = text(plane.data, one.value, one.stop)
        elif one.number == 3 and one.wire == NUMBER:
            line.timestamp_ns = one.value
        elif one.number == 10 and one.wire == NUMBER:
            display = one.value
        elif one.number == 11 and one.wire == STRETCH:
            shown = text(plane.data, one.value, one.stop)
    line.name, line.number = shown or line.name, display or line.number
    return line


def _entry(data: Buffer, at: int, stop: int) -> tuple[int, int, int]:
    """Key and value of an entry of a table; the value is a stretch."""
    key, begin, end = 0, at, at
    for one in fields(data, at, stop):
        if one.number == 1 and one.wire == NUMBER:
            key = one.value
        elif one.number == 2 and one.wire == STRETCH:
            begin, end = one.value, min(one.stop, stop)
    return key, begin, end


def _event_metadata(plane: Plane, at: int, stop: int) -> None:
    key, begin, end = _entry(plane.data, at, stop)
    name, shown, stats = "", "", []
    for one in fields(plane.data, begin, end):
        if one.wire != STRETCH:
            continue
        if one.number == 2:
            name = text(plane.data, one.value, min(one.stop, end))
        elif one.number == 4:
            shown = text(plane.data, one.value, min(one.stop, end))
        elif one.number == 5:
            stats.append(_stat(plane.data, one.value, min(one.stop, end)))
    plane.events[key] = Metadata(name or shown, shown or name, tuple(stats))


def _stat_metadata(plane: Plane, at: int, stop: int) -> None:
    key, begin, end = _entry(plane.data, at, stop)
    for one in fields(plane.data, begin, end):
        if one.number == 2 and one.wire == STRETCH:
            plane.stat_names[key] = text(plane.data, one.value, min(one.stop, end))


def _stat(data: Buffer, at: int, stop: int) -> tuple[int, int, int, int]:
    """A row as in the table of a block."""
    metadata, kind, value, behind = 0, 0, 0, 0
    for one in fields(data, at, stop):
        if one.number == 1 and one.wire == NUMBER:
            metadata = one.value
        elif one.number in (UNSIGNED, SIGNED, REFERENCE) and one.wire == NUMBER:
            kind, value, behind = one.number, one.value, one.stop
        elif one.number == DOUBLE and one.wire == EIGHT and one.stop <= stop:
            kind, value, behind = DOUBLE, int.from_bytes(data[one.value : one.stop], "little", signed=True), one.stop
        elif one.number in (TEXT, BYTES) and one.wire == STRETCH:
            kind, value, behind = one.number, one.value, min(one.stop, stop)
    return metadata, kind, value, behind


# ---- XSpace files (`*.xplane.pb`): the profiles that TensorFlow, JAX and PyTorch/XLA write, read by their -----------

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
