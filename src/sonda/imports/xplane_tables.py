"""The skeleton of an XSpace file: planes, lines and tables of names, found without reading events. See `xplane.py`."""

from __future__ import annotations

from typing import Any

import numpy as np

from sonda.imports.wire import EIGHT, NUMBER, STRETCH, Buffer, Field, fields, text
from sonda.imports.xplane_kernel import DAMAGED, find_others, varint
from sonda.imports.xplane_plane import (
    BYTES,
    DOUBLE,
    GIVEN_BACK,
    REFERENCE,
    SIGNED,
    TEXT,
    UNSIGNED,
    Line,
    Metadata,
    Plane,
    Space,
    give_back,
)
from sonda.record.compiled import compiled

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
