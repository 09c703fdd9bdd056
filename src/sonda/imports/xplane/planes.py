"""What an XSpace file holds: planes, their tables of names, lines, and blocks of events.

`file.py` opens and reads such files.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from sonda.imports.xplane.scanner import (
    DAMAGED,
    DURATION,
    FIELD,
    FIRST_STAT,
    FULL,
    LAST_STAT,
    METADATA,
    OCCURRENCES,
    OFFSET,
    STAT,
    STOP,
    VALUE,
    scan_events,
    varint,
)
from sonda.imports.xplane.wire import Buffer, double, text
from sonda.record.jit import compiled

EVENTS, STATS = 1 << 16, 1 << 19
"""Of one block."""
GIVEN_BACK = 8 << 20
"""Bytes of a file that may stay in memory behind what is being read."""
ABSENT = -1
PS_PER_NS = 1000
DOUBLE, UNSIGNED, SIGNED, TEXT, BYTES, REFERENCE = 2, 3, 4, 5, 6, 7
"""Fields of XStat that hold its value. A reference is the id of stat metadata whose name is the value."""
ENVIRONMENT = "Task Environment"
"""The plane that says when the profile began and ended."""

Stat = int | float | str | bytes


@dataclass(frozen=True)
class XEvent:
    name: str
    start_ns: int
    duration_ns: int
    stats: dict[str, Stat]
    """By name; those of the event itself hide those that all events of its name share."""
    shown: str = ""
    """Its short name: of an operation of TensorFlow the type; the name itself where the file has no other."""
    occurrences: int = 0
    """How many it stands for, where it is a sum without a moment of its own."""


@dataclass(frozen=True)
class EventMetadata:
    """What all events of one name share."""

    name: str
    shown: str
    """The short name; of a TPU's operations the long one is a whole line of HLO."""
    stats: tuple[tuple[int, int, int, int], ...] = ()
    """As in the table of a block."""


@dataclass
class XSpace:
    """A file. `planes` are in its order; `truncated` says that it ends in the middle of something."""

    planes: list[XPlane]
    truncated: bool = False
    hosts: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    """What the profiler complained about."""

    @property
    def began_ns(self) -> int:
        """ns since 1970 at the zero of its times; 0 where the file does not say so, or its times are such already."""
        starts = [plane.stats.get("profile_start_time") for plane in self.planes if plane.name == ENVIRONMENT]
        began = next((value for value in starts if isinstance(value, int)), 0)
        first = [line.timestamp_ns for plane in self.planes for line in plane.lines if line.count]
        return began if 0 < began < 1 << 62 and first and min(first) < began // 2 else 0


@dataclass
class XPlane:
    """A host or a device, with the tables that its events refer to."""

    data: Buffer
    compiled: bool
    number: int = 0
    name: str = ""
    lines: list[XLine] = field(default_factory=list)
    events: dict[int, EventMetadata] = field(default_factory=dict)
    """By id."""
    stat_names: dict[int, str] = field(default_factory=dict)
    stats: dict[str, Stat] = field(default_factory=dict)
    """Of the plane itself: what is known about the device, …"""
    truncated: bool = False

    @cached_property
    def stat_ids(self) -> dict[str, int]:
        return {name: number for number, name in self.stat_names.items()}

    def about(self, metadata: int) -> EventMetadata:
        """What is known of events; where the table lacks them, a name made from their number."""
        entry = self.events.get(metadata)
        if entry is None or not entry.name:
            return EventMetadata(f"event {metadata}", f"event {metadata}", entry.stats if entry is not None else ())
        return entry

    def decoded(self, rows: Any) -> dict[str, Stat]:
        """Stats by name from rows of a block's table; those without a value or a name are left out."""
        values: dict[str, Stat] = {}
        for metadata, kind, value, stop in rows:
            name = self.stat_names.get(metadata)
            decoded = self._value(kind, value, stop)
            if name is not None and decoded is not None:
                values[name] = decoded
        return values

    def _value(self, kind: int, value: int, stop: int) -> Stat | None:
        if kind == DOUBLE:
            return double(value)
        if kind == UNSIGNED:
            return value & (1 << 64) - 1
        if kind == SIGNED:
            return value
        if kind == TEXT:
            return text(self.data, value, stop)
        if kind == BYTES:
            return self.data[value:stop]
        return self.stat_names.get(value) if kind == REFERENCE else None


@dataclass
class XLine:
    """A thread or a stream."""

    plane: XPlane
    at: int
    stop: int
    """Where it lies in the file."""
    number: int = 0
    name: str = ""
    timestamp_ns: int = 0
    """When it begins; events count from there."""
    count: int = 0
    """Events, broken ones included."""
    truncated: bool = False
    unreadable: int = 0
    """Events that could not be read, once `blocks` is through."""

    def blocks(self) -> Iterator[EventBlock]:
        """Its events in the order of the file, at most `EVENTS` at a time."""
        data: Any = np.frombuffer(self.plane.data, np.uint8) if self.plane.compiled else self.plane.data
        scan = compiled(scan_events, varint) if self.plane.compiled else scan_events
        at, given_back, room = self.at, self.at, min(EVENTS, self.count)
        stat_room = min(STATS, max(self.stop - self.at, 1))
        ended = np.zeros(5, np.int64)
        while at < self.stop and room:
            events, stats = np.empty((room, 6), np.int64), np.empty((stat_room, 4), np.int64)
            scan(data, at, self.stop, events, stats, ended)
            at, count, used, how, broken = (int(number) for number in ended)
            self.unreadable += broken
            if count:
                yield EventBlock(self, events[:count], stats[:used])
            if how == DAMAGED:
                break
            if how == FULL and not count and not broken:
                stat_room *= 2  # one event has more stats than the table
            if at - given_back > GIVEN_BACK:
                given_back = release_pages(self.plane.data, given_back, at)

    def events(self) -> Iterator[XEvent]:
        """The same, one by one, with their names and stats."""
        for block in self.blocks():
            yield from block.events()


@dataclass(frozen=True)
class EventBlock:
    """Events of one line as columns."""

    line: XLine
    rows: np.ndarray
    stats: np.ndarray

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def metadata(self) -> np.ndarray:
        return self.rows[:, METADATA]

    @property
    def timed(self) -> np.ndarray:
        """Which events have a moment and a duration that can be: sums have none, and times outside ±146 years, or
        that end before they begin, are no times."""
        offset, duration = self.rows[:, OFFSET], self.rows[:, DURATION]
        limit = 1 << 62
        possible = (offset > -limit) & (offset < limit) & (duration >= 0) & (duration < limit)
        return possible & (self.rows[:, OCCURRENCES] == 0) & (abs(self.line.timestamp_ns) < limit)

    @property
    def start_ns(self) -> np.ndarray:
        return self.line.timestamp_ns + self.rows[:, OFFSET] // PS_PER_NS

    @property
    def duration_ns(self) -> np.ndarray:
        """From the ns in which it begins to the one in which it ends, so that what lies inside stays inside."""
        offset = self.rows[:, OFFSET]
        return (offset + self.rows[:, DURATION]) // PS_PER_NS - offset // PS_PER_NS

    def numbers(self, name: str) -> np.ndarray:
        """Of every event its stat of this name as a whole number, `ABSENT` where it has none, or text."""
        values = np.full(len(self.rows), ABSENT, np.int64)
        wanted = self.line.plane.stat_ids.get(name)
        if wanted is None:
            return values
        mine = (self.stats[:, STAT] == wanted) & np.isin(self.stats[:, FIELD], (UNSIGNED, SIGNED, REFERENCE))
        places = np.flatnonzero(mine)
        values[self.owner(places)] = self.stats[places, VALUE]
        return values

    def texts(self, name: str) -> tuple[np.ndarray, list[str]]:
        """Of every event its stat of this name as a place in a list of texts, -1 where it has none."""
        codes = np.full(len(self.rows), ABSENT, np.int64)
        wanted = self.line.plane.stat_ids.get(name)
        known: dict[str, int] = {}
        if wanted is not None:
            mine = (self.stats[:, STAT] == wanted) & np.isin(self.stats[:, FIELD], (TEXT, REFERENCE))
            places = np.flatnonzero(mine)
            owner = self.owner(places)
            referring = self.stats[places, FIELD] == REFERENCE
            for number in np.unique(self.stats[places[referring], VALUE]).tolist():
                text_of = self.line.plane.stat_names.get(number, "")
                rows = owner[referring & (self.stats[places, VALUE] == number)]
                codes[rows] = known.setdefault(text_of, len(known))
            for row, place in zip(owner[~referring].tolist(), places[~referring].tolist(), strict=True):
                word = text(self.line.plane.data, int(self.stats[place, VALUE]), int(self.stats[place, STOP]))
                codes[row] = known.setdefault(word, len(known))
        return codes, list(known)

    def owner(self, places: np.ndarray) -> np.ndarray:
        """Rows of the events that stats belong to."""
        return np.searchsorted(self.rows[:, LAST_STAT], places, "right")

    def has(self, name: str) -> np.ndarray:
        """Which events have a stat of this name, whatever it holds."""
        rows = np.zeros(len(self.rows), bool)
        wanted = self.line.plane.stat_ids.get(name)
        if wanted is not None:
            rows[self.owner(np.flatnonzero(self.stats[:, STAT] == wanted))] = True
        return rows

    def stats_of(self, row: int) -> dict[str, Stat]:
        """By name, of one event."""
        first, last = int(self.rows[row, FIRST_STAT]), int(self.rows[row, LAST_STAT])
        plane = self.line.plane
        shared = plane.events.get(int(self.rows[row, METADATA]))
        values = plane.decoded(shared.stats) if shared is not None and shared.stats else {}
        return values | plane.decoded(self.stats[first:last].tolist())

    def events(self) -> Iterator[XEvent]:
        plane = self.line.plane
        columns = (self.start_ns, self.duration_ns, self.metadata, self.rows[:, OCCURRENCES])
        for row, (start, duration, metadata, occurrences) in enumerate(
            zip(*(column.tolist() for column in columns), strict=True)
        ):
            entry = plane.about(metadata)
            yield XEvent(entry.name, start, duration, self.stats_of(row), entry.shown, occurrences)


def release_pages(data: Buffer, begin: int, end: int) -> int:
    """Let the memory of a stretch of the file go; returns where what was not let go begins."""
    if not isinstance(data, mmap.mmap) or not hasattr(mmap, "MADV_DONTNEED"):
        return end
    first, last = (place // mmap.PAGESIZE * mmap.PAGESIZE for place in (begin, end))
    if last > first:
        data.madvise(mmap.MADV_DONTNEED, first, last - first)
    return last
